// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// The reason why mounts are not used is errdefs.ErrFailedPrecondition, and its text does not
// contain the sentinel.
func TestReasonsAgainstMountsAreFailedPreconditions(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	cd := &containerDirs{host: host}
	err = cd.makeSharedMount()
	if !errdefs.IsFailedPrecondition(err) || err.Error() != "host paths are taken below "+dir {
		t.Errorf("below another root: %v", err)
	}
	if err := checkHostMountNamespace(); err != nil && (!errdefs.IsFailedPrecondition(err) || err.Error() != "the process has a mount namespace of its own") {
		t.Errorf("in a private mount namespace: %v", err)
	}
}
