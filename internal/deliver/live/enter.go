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

// container is a target with an open mount namespace.
type container struct {
	target Target
	mntNS  int
	// bindsDevices is set if device nodes cannot be created for the container. It receives bind
	// mounts of the host's nodes instead.
	bindsDevices bool
}

// openContainer opens the mount namespace of a container's first process. The namespace must not be this
// process's own, because edits would change the host.
func openContainer(t Target) (*container, error) {
	if t.Pid <= 0 {
		return nil, fmt.Errorf("enter container: invalid process ID %d: must belong to the container's first "+
			"process: %w", t.Pid, errdefs.ErrInvalidArgument)
	}
	if !path.IsAbs(t.Root) {
		return nil, fmt.Errorf("enter container: invalid root %q: must be an absolute path: %w", t.Root,
			errdefs.ErrInvalidArgument)
	}
	c := &container{target: t}
	var err error
	if c.mntNS, err = unix.Open(c.procPath("ns/mnt"), unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("enter container: open the mount namespace of process %d: %w", t.Pid, err)
	}
	if err := c.checkForeignNamespace(); err != nil {
		c.close()
		return nil, fmt.Errorf("enter container: %w", err)
	}
	return c, nil
}

func (c *container) close() { unix.Close(c.mntNS) }

// procPath returns the path of a file in the /proc directory of the container's process.
func (c *container) procPath(name string) string {
	return "/proc/" + strconv.Itoa(c.target.Pid) + "/" + name
}

// checkForeignNamespace returns an error if the container is in this process's mount namespace,
// because mounts would then change the host.
func (c *container) checkForeignNamespace() error {
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/mnt", &own), unix.Fstat(c.mntNS, &theirs)); err != nil {
		return fmt.Errorf("inspect the mount namespace of process %d: %w", c.target.Pid, err)
	}
	if own.Ino == theirs.Ino {
		return fmt.Errorf("container process %d shares the hook's mount namespace; refusing to mount there: %w",
			c.target.Pid, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// hasOtherUserNamespace reports whether the container has a different user namespace than this
// process.
func (c *container) hasOtherUserNamespace() (bool, error) {
	var own, theirs unix.Stat_t
	if err := errors.Join(unix.Stat("/proc/self/ns/user", &own),
		unix.Stat(c.procPath("ns/user"), &theirs)); err != nil {
		return false, fmt.Errorf("inspect the user namespace of process %d: %w", c.target.Pid, err)
	}
	return own.Ino != theirs.Ino, nil
}

// onDisposableThread calls f with a descriptor of the container's root, on a thread in the
// container's mount namespace. The thread ends with f, so no other code runs in that namespace.
func (c *container) onDisposableThread(f func(root int) error) error {
	// The caller's thread, usually the first one, stays with the caller.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			// The main thread cannot end, and /proc/self shows its namespaces. While this goroutine
			// locks it, the next goroutine runs on another thread.
			done <- c.onDisposableThread(f)
			runtime.UnlockOSThread()
			return
		}
		// The goroutine never unlocks the thread, so Go terminates the thread with it.
		done <- c.enterNamespace(f)
	}()
	return <-done
}

// enterNamespace moves this thread into the container's mount namespace. It unshares root, working
// directory and umask, because a thread that shares them cannot change its mount namespace. It sets
// the umask to 0, so that files in the container have exactly the requested mode.
func (c *container) enterNamespace(f func(root int) error) error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("enter container: %w", err)
	}
	unix.Umask(0)
	if err := unix.Setns(c.mntNS, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("enter the mount namespace of process %d: %w", c.target.Pid, err)
	}
	root, err := unix.Open(c.target.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the container's root %q in the mount namespace of process %d: %w", c.target.Root,
			c.target.Pid, err)
	}
	defer unix.Close(root)
	return f(root)
}
