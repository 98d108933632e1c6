// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// home is where this process's threads are: what one comes back to that enters a
// container. It is opened before, so that nothing in there is asked for the way.
type home struct{ mntNS, root, cwd int }

func openHome() (*home, error) {
	h := &home{-1, -1, -1}
	for _, o := range []struct {
		fd   *int
		name string
		how  int
	}{
		{&h.mntNS, "/proc/thread-self/ns/mnt", 0},
		{&h.root, "/", unix.O_PATH | unix.O_DIRECTORY},
		{&h.cwd, ".", unix.O_PATH | unix.O_DIRECTORY},
	} {
		var err error
		if *o.fd, err = unix.Open(o.name, o.how|unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
			h.close()
			return nil, fmt.Errorf("open %s, to come back to: %w", o.name, err)
		}
	}
	return h, nil
}

func (h *home) close() {
	for _, fd := range []int{h.mntNS, h.root, h.cwd} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// back brings this thread home. setns(2) puts it at the root of the namespace, which
// need not be the process's own.
func (h *home) back() error {
	err := unix.Setns(h.mntNS, unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Fchdir(h.root)
	}
	if err == nil {
		err = unix.Chroot(".")
	}
	if err == nil {
		err = unix.Fchdir(h.cwd)
	}
	if err != nil {
		return fmt.Errorf("come back out of the container's mount namespace: %w", err)
	}
	return nil
}

// visit has this thread enter and come back.
func (c *container) visit(f func(root int) error) (err error) {
	// No other goroutine gets this thread meanwhile, and no new thread comes of it: Go
	// has those made by one that was never locked.
	runtime.LockOSThread()
	if unix.Fchdir(c.home.cwd) != nil {
		// A working directory that cannot be had again, such as one on a file system in
		// user space that is another user's, is not left.
		runtime.UnlockOSThread()
		return c.apart(f)
	}
	umask, err := alone()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer func() { // after a panic, too
		if lost := c.home.back(); lost != nil {
			// This thread does no more.
			go c.stranded(errors.Join(err, lost))
			select {}
		}
		unix.Umask(umask)
		runtime.UnlockOSThread()
	}()
	return c.enter(f)
}
