// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Mode is how sockets get into containers.
type Mode string

const (
	// Auto is Mounts where that works, else Directories. It is a wish only.
	Auto Mode = "auto"
	// Mounts binds each socket in the staging directory, which is propagated into
	// the container: a socket can be bound anew, and one be added, while the
	// container runs.
	Mounts Mode = "mount"
	// Directories leaves it to the runtime to bind the sockets' own directories.
	Directories Mode = "directory"
)

// Status says which mode is in force, and why it is not Mounts.
type Status struct {
	Mode   Mode   `json:"mode"`
	Reason string `json:"reason,omitempty"`
}

// ReasonConfigured is the reason for Directories where the configuration sets them.
const ReasonConfigured = "the configuration asks for it"

const statusFile = "staging.json"

// ReadStatus is what the store of a state directory works with, or last did. Where
// none ever was, Mode is Directories, and the error errdefs.ErrNotFound.
func ReadStatus(host hostfs.Root, stateDir string) (Status, error) {
	st := Status{Mode: Directories, Reason: "nothing has been staged on this host yet"}
	data, err := host.ReadFile(path.Join(stateDir, statusFile), 64<<10)
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return st, fmt.Errorf("read %q: %w", path.Join(stateDir, statusFile), err)
	}
	return st, nil
}

// Status says which mode is in force.
func (s *Store) Status() Status { return s.status }

// choose settles the mode and readies the directory for it.
func (s *Store) choose(want Mode) error {
	if s.opts.Present {
		s.status = Status{Mode: Mounts}
		return nil
	}
	switch want {
	case Directories:
		s.status = Status{Mode: Directories, Reason: ReasonConfigured}
	case Auto, Mounts, "":
		err := s.readyMount(want)
		if err != nil && want == Mounts {
			return fmt.Errorf("stage sockets as mounts: %w", err)
		}
		s.status = Status{Mode: Mounts}
		if err != nil {
			s.status = Status{Mode: Directories, Reason: err.Error()}
		}
	default:
		return fmt.Errorf("stage sockets: found mode %q, want auto, mount or directory: %w", want, errdefs.ErrInvalidArgument)
	}
	data, err := json.Marshal(s.status)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path.Join(s.dir, statusFile)); err == nil && string(old) == string(data) {
		return nil
	}
	return s.replace(s.dir, statusFile, data)
}

// readyMount makes the directory of all containers a shared mount. The error says why
// mounts made in it would not reach containers.
func (s *Store) readyMount(want Mode) error {
	if s.host.Dir() != "/" && want != Mounts {
		return errdefs.ErrFailedPrecondition.WithMessage("host paths are taken below " + s.host.Dir())
	}
	dir := s.containers()
	around, on, err := mountsAt(dir)
	if err != nil {
		return err
	}
	if !around.Shared {
		if err := sameNamespace(); err != nil {
			return fmt.Errorf("%w, and %s is not shared with the host: mount the state directory with mountPropagation Bidirectional", err, around.Point)
		}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	// Attached as a clone that is in no peer group, so that it gets one of its own:
	// in that of the file system around it, each mount would be made twice.
	tree, err := clone(fd, 0)
	if err != nil {
		return mayNot("make a mount (Linux 5.12 is needed)", err)
	}
	defer unix.Close(tree)
	if on == nil {
		if err := attach(tree, dir, 0); err != nil {
			return mayNot("bind "+dir+" on itself", err)
		}
	}
	if on == nil && !around.Shared || on != nil && !on.Shared {
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			return mayNot("make "+dir+" a shared mount", err)
		}
	}
	return nil
}

func mayNot(what string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: this needs root with CAP_SYS_ADMIN", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// sameNamespace is nil where the process works in the mount namespace of the
// host's first process, as far as that can be told.
func sameNamespace() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if first, err := os.Readlink("/proc/1/ns/mnt"); err == nil && first == own && os.Getpid() != 1 {
		return nil
	}
	return errdefs.ErrFailedPrecondition.WithMessage("the process has a mount namespace of its own")
}
