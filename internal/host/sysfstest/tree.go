// SPDX-License-Identifier: Apache-2.0

package sysfstest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// ErrNoMknod means that this process cannot create character devices.
var ErrNoMknod = errors.New("making device nodes needs CAP_MKNOD in the initial user namespace")

// Dev is a device number.
type Dev struct{ Major, Minor uint32 }

// Null is /dev/null's number. Null and Zero exist on every kernel and are harmless:
// tests use them instead of hardware if a container has to open the node.
func Null() Dev { return Dev{1, 3} }

// Zero is /dev/zero's number.
func Zero() Dev { return Dev{1, 5} }

func (d Dev) String() string { return fmt.Sprintf("%d:%d", d.Major, d.Minor) }

// Tree is a host root below one directory.
type Tree struct{ root hostfs.Root }

// New creates an empty tree in dir, which must exist.
func New(dir string) (*Tree, error) {
	root, err := hostfs.New(dir)
	if err != nil {
		return nil, err
	}
	t := &Tree{root: root}
	for _, d := range []string{"/sys/bus/pci/devices", "/sys/bus/vdpa/devices", "/sys/class/misc", "/sys/class/vfio",
		"/dev"} {
		if err := t.Mkdir(d); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Root returns the tree as a host root.
func (t *Tree) Root() hostfs.Root { return t.root }

// Path returns the path on this machine of a host path.
func (t *Tree) Path(hostPath string) string { return t.root.Path(hostPath) }

// Mkdir creates a directory and its parents.
func (t *Tree) Mkdir(hostPath string) error { return os.MkdirAll(t.Path(hostPath), 0o755) }

// WriteFile creates or replaces a file, and creates its parents.
func (t *Tree) WriteFile(hostPath, content string) error {
	if err := t.Mkdir(filepath.Dir(hostPath)); err != nil {
		return err
	}
	return os.WriteFile(t.Path(hostPath), []byte(content), 0o644)
}

// Remove removes a path and everything below it. A missing path is no error.
func (t *Tree) Remove(hostPath string) error { return os.RemoveAll(t.Path(hostPath)) }

// Link creates or replaces a relative symlink at hostPath to the host path target.
func (t *Tree) Link(hostPath, target string) error {
	rel, err := filepath.Rel(filepath.Dir(hostPath), target)
	if err != nil {
		return err
	}
	return t.Symlink(hostPath, rel)
}

// Symlink creates or replaces a symlink with exactly the given text.
func (t *Tree) Symlink(hostPath, text string) error {
	if err := t.makeRoom(hostPath); err != nil {
		return err
	}
	return os.Symlink(text, t.Path(hostPath))
}

// makeRoom creates the parents of a path, and removes an existing file or tree at the path.
func (t *Tree) makeRoom(hostPath string) error {
	return errors.Join(t.Mkdir(filepath.Dir(hostPath)), t.Remove(hostPath))
}

// Node creates or replaces a character device, owned by the caller.
func (t *Tree) Node(hostPath string, mode uint32, dev Dev) error {
	if err := t.makeRoom(hostPath); err != nil {
		return err
	}
	p := t.Path(hostPath)
	err := unix.Mknod(p, unix.S_IFCHR|mode, int(unix.Mkdev(dev.Major, dev.Minor)))
	if errors.Is(err, unix.EPERM) {
		err = ErrNoMknod
	}
	if err != nil {
		return fmt.Errorf("make device node %q: %w", p, err)
	}
	return os.Chmod(p, os.FileMode(mode)) // mknod applies the umask
}
