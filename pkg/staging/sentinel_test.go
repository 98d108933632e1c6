// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Why sockets are not bound by mounts is a failed precondition, and the reason that is shown
// has no other text for that.
func TestReasonsAgainstMountsAreFailedPreconditions(t *testing.T) {
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	must(t, err)
	s := &Store{host: host}
	err = s.readyMount(Auto)
	if !errdefs.IsFailedPrecondition(err) || err.Error() != "host paths are taken below "+dir {
		t.Errorf("below another root: %v", err)
	}
	if err := sameNamespace(); err != nil && (!errdefs.IsFailedPrecondition(err) || err.Error() != "the process has a mount namespace of its own") {
		t.Errorf("in a mount namespace of its own: %v", err)
	}
}

func TestErrorsOfAccessHaveSentinels(t *testing.T) {
	f, err := os.Open(t.TempDir())
	must(t, err)
	defer f.Close()
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	if err := give(int(f.Fd()), linkOf(int(f.Fd())), &st, "socket", -1, 0, 0o60); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("the host's own group: %v", err)
	}
	if _, err := decodeACL([]byte{9, 0, 0, 0}); !errors.Is(err, errdefs.ErrNotImplemented) {
		t.Errorf("an ACL of another version: %v", err)
	}
}
