// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// container is a target, opened.
type container struct {
	target Target
	mntNS  int
	userNS bool // it has a user namespace of its own
	bound  bool // device nodes cannot be made for it, and so are the host's own, bound
}

func open(t Target) (*container, error) {
	if t.Pid <= 0 {
		return nil, fmt.Errorf("enter container: found process %d, want the container's first: %w", t.Pid, errdefs.ErrInvalidArgument)
	}
	if !path.IsAbs(t.Root) {
		return nil, fmt.Errorf("enter container: found root %q, want an absolute path: %w", t.Root, errdefs.ErrInvalidArgument)
	}
	proc := "/proc/" + strconv.Itoa(t.Pid)
	c := &container{target: t}
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/user", &own), unix.Stat(proc+"/ns/user", &theirs)); err != nil {
		return nil, fmt.Errorf("enter container: look at the user namespace of process %d: %w", t.Pid, err)
	}
	c.userNS = own.Ino != theirs.Ino
	if err := errors.Join(unix.Stat("/proc/self/ns/mnt", &own), unix.Stat(proc+"/ns/mnt", &theirs)); err != nil {
		return nil, fmt.Errorf("enter container: look at the mount namespace of process %d: %w", t.Pid, err)
	}
	if own.Ino == theirs.Ino {
		return nil, fmt.Errorf("enter container: process %d has this process's own mount namespace, in which nothing is mounted for it: %w", t.Pid, errdefs.ErrFailedPrecondition)
	}
	var err error
	if c.mntNS, err = unix.Open(proc+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("enter container: open the mount namespace of process %d: %w", t.Pid, err)
	}
	return c, nil
}

func (c *container) close() { unix.Close(c.mntNS) }

// inside calls f in the container's mount namespace, with a descriptor of its root.
// The thread that does it is never used again.
func (c *container) inside(f func(root int) error) error {
	// This goroutine's thread, the first one as a rule, cannot be the other's then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and /proc/self shows its namespaces. While it is
			// held here, another one takes over.
			done <- c.inside(f)
			runtime.UnlockOSThread()
			return
		}
		// Locked for good: the thread ends with the goroutine.
		done <- c.enter(f)
	}()
	return <-done
}

func (c *container) enter(f func(root int) error) error {
	// Threads share their root and working directory, and one that does cannot change
	// its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter container: %w", err)
	}
	if err := unix.Setns(c.mntNS, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace of process %d: %w", c.target.Pid, err)
	}
	root, err := unix.Open(c.target.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the container's root %q in the mount namespace of process %d: %w", c.target.Root, c.target.Pid, err)
	}
	defer unix.Close(root)
	return f(root)
}
