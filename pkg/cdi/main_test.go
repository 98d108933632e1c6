// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMain sets a umask under which only the owner can write the tests' spec files.
func TestMain(m *testing.M) {
	unix.Umask(0o022)
	os.Exit(m.Run())
}
