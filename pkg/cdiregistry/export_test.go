// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain has the tests make files that only their owner can write, as a spec file has
// to be, whoever runs them.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	os.Exit(m.Run())
}

// Guarded looks until the guard is up, without waiting for the lookups that it
// would be worth, and tells whether it is.
func (r *Registry) Guarded() bool {
	for range 4 {
		r.guard.mu.Lock()
		r.guard.rest = 0
		up := r.guard.ids != nil
		r.guard.mu.Unlock()
		if up {
			return true
		}
		r.Snapshot()
	}
	return false
}

// GuardUp tells whether the guard is up.
func GuardUp(r *Registry) bool {
	r.guard.mu.Lock()
	defer r.guard.mu.Unlock()
	return r.guard.ids != nil
}
