// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"testing"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// In a user namespace root of the host is seen as nobody, as everybody is who has no
// uid there; on the host that is a user like any other, who is not believed.
func TestTrustFromAUserNamespace(t *testing.T) {
	for _, tc := range []struct {
		inside    bool
		uid, mode uint32
		believed  bool
	}{
		{false, 0, 0o755, true}, {false, 1000, 0o755, true}, {false, 65534, 0o755, false}, {false, 5, 0o755, false},
		{true, 0, 0o755, true}, {true, 1000, 0o755, true}, {true, 65534, 0o755, true}, {true, 5, 0o755, false},
		{true, 65534, 0o775, false}, {true, 65534, 0o757, false}, {true, 0, 0o777, false},
	} {
		r := &Registry{euid: 1000, outside: func() (hostfs.Outside, bool) {
			return hostfs.Outside{Root: 1000, Unmapped: 65534}, tc.inside
		}}
		if found, rule := r.distrust("file", "/etc/cdi/a.json", tc.mode, tc.uid); (rule == "") != tc.believed {
			t.Errorf("%+v: %q, %q", tc, found, rule)
		}
	}
}
