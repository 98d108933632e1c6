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
	bound  bool // device nodes cannot be made for it, and so are the host's own, bound

	home     *home // nil where a thread of its own enters
	stranded func(error)
}

func open(t Target, opts Options) (*container, error) {
	if t.Pid <= 0 {
		return nil, fmt.Errorf("enter container: found process %d, want the container's first: %w", t.Pid, errdefs.ErrInvalidArgument)
	}
	if !path.IsAbs(t.Root) {
		return nil, fmt.Errorf("enter container: found root %q, want an absolute path: %w", t.Root, errdefs.ErrInvalidArgument)
	}
	c := &container{target: t, stranded: opts.Stranded}
	var err error
	if c.mntNS, err = unix.Open(c.proc("ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("enter container: open the mount namespace of process %d: %w", t.Pid, err)
	}
	if opts.Stranded != nil {
		if c.home, err = openHome(); err != nil {
			c.close()
			return nil, fmt.Errorf("enter container: %w", err)
		}
	}
	if err := c.elsewhere(); err != nil {
		c.close()
		return nil, fmt.Errorf("enter container: %w", err)
	}
	return c, nil
}

func (c *container) close() {
	unix.Close(c.mntNS)
	if c.home != nil {
		c.home.close()
	}
}

// proc is the path of a file about the container's process.
func (c *container) proc(name string) string {
	return "/proc/" + strconv.Itoa(c.target.Pid) + "/" + name
}

// elsewhere sees to it that the container has a mount namespace that is not this
// process's own.
func (c *container) elsewhere() error {
	var own, theirs unix.Stat_t
	err := unix.Fstat(c.mntNS, &theirs)
	if err == nil && c.home != nil {
		err = unix.Fstat(c.home.mntNS, &own)
	} else if err == nil {
		err = unix.Stat("/proc/self/ns/mnt", &own)
	}
	if err != nil {
		return fmt.Errorf("look at the mount namespace of process %d: %w", c.target.Pid, err)
	}
	if own.Ino == theirs.Ino {
		return fmt.Errorf("process %d has this process's own mount namespace, in which nothing is mounted for it: %w", c.target.Pid, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// userNS reports whether the container has a user namespace that is not this process's
// own.
func (c *container) userNS() (bool, error) {
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/user", &own), unix.Stat(c.proc("ns/user"), &theirs)); err != nil {
		return false, fmt.Errorf("look at the user namespace of process %d: %w", c.target.Pid, err)
	}
	return own.Ino != theirs.Ino, nil
}

// inside calls f in the container's mount namespace, with a descriptor of its root.
// Whatever comes after it is outside.
func (c *container) inside(f func(root int) error) error {
	if c.home != nil {
		return c.visit(f)
	}
	return c.apart(f)
}

// apart has a thread enter that is never used again.
func (c *container) apart(f func(root int) error) error {
	// This goroutine's thread, the first one as a rule, cannot be the other's then.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The first thread cannot end, and /proc/self shows its namespaces. While it is
			// held here, another one takes over.
			done <- c.apart(f)
			runtime.UnlockOSThread()
			return
		}
		// Locked for good: the thread ends with the goroutine.
		_, err := alone()
		if err == nil {
			err = c.enter(f)
		}
		done <- err
	}()
	return <-done
}

// alone gives this thread a root, a working directory and a umask of its own. Threads
// share theirs, and one that does cannot change its mount namespace. The umask is none:
// what is made for the container has the mode that it is to have, whatever that of who
// started the runtime, which is returned.
func alone() (umask int, err error) {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return 0, fmt.Errorf("enter container: %w", err)
	}
	return unix.Umask(0), nil
}

// enter leaves this thread inside.
func (c *container) enter(f func(root int) error) error {
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
