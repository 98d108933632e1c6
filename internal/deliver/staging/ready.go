// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// readyFiles marks the containers whose mounts all exist, for the rebinder of a shared state directory. In another
// state directory it does nothing.
type readyFiles struct {
	dir    string // as a path of this process
	shared bool
}

// mark makes the rebinder track a container whose mounts all exist. The lock is held.
func (f *readyFiles) mark(c *edit.Container) error {
	if !f.shared {
		return nil
	}
	return hostfs.ReplaceFile(filepath.Join(f.dir, c.ID), []byte(c.SandboxID), viewFile)
}

// unmark makes the rebinder ignore a container that is about to change. The lock is held.
func (f *readyFiles) unmark(containerID string) error {
	if !f.shared {
		return nil
	}
	if err := unix.Unlink(filepath.Join(f.dir, containerID)); err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unlink", Path: filepath.Join(f.dir, containerID), Err: err}
	}
	return nil
}

// isRemoved reports whether another process is removing or has removed a container. The lock is held.
func (f *readyFiles) isRemoved(containerID string) bool {
	var st unix.Stat_t
	return f.shared && unix.Lstat(filepath.Join(f.dir, containerID), &st) != nil
}

// removeUnfinished removes the ready files that killed processes have not finished. It takes the lock only if there
// are any.
func (f *readyFiles) removeUnfinished(lock *stateLock) error {
	names, err := listNames(f.dir)
	if err != nil || !slices.ContainsFunc(names, hostfs.IsUnfinished) {
		return err
	}
	return lock.run(func() error { return hostfs.RemoveUnfinished(f.dir) })
}

// IsReady reports whether all mounts of a container exist in a shared state directory.
func IsReady(host hostfs.Root, stateDir, containerID string) bool {
	if checkID("container", containerID) != nil {
		return false
	}
	var st unix.Stat_t
	return unix.Lstat(filepath.Join(readyDir(host.Path(stateDir)), containerID), &st) == nil
}
