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

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Mode is how sockets get into containers.
type Mode string

const (
	// ModeAuto is ModeMount where that works, and ModeDirectory elsewhere. A store's Status
	// never has it.
	ModeAuto Mode = "auto"
	// ModeMount binds each socket in the staging directory, from where the mount propagates
	// into the container. Sockets can be rebound and added while the container runs.
	ModeMount Mode = "mount"
	// ModeDirectory lets the runtime bind the directories that the sockets are in.
	ModeDirectory Mode = "directory"
)

// Reason says why sockets are not staged as mounts.
type Reason string

const (
	// ReasonConfigured means that the configuration sets ModeDirectory.
	ReasonConfigured Reason = "configured"
	// ReasonUnavailable means that mounts made here do not reach containers.
	ReasonUnavailable Reason = "unavailable"
	// ReasonUnknown means that nothing has been staged on this host yet.
	ReasonUnknown Reason = "unknown"
)

// Status is the mode in force, and why it is not ModeMount.
type Status struct {
	Mode   Mode   `json:"mode"`
	Reason Reason `json:"reasonCode,omitempty"`
	Detail string `json:"reason,omitempty"` // the reason in words, for people
}

const statusFile = "staging.json"

// ReadStatus returns the status of the last store of a state directory. Without one, the mode
// is ModeDirectory and the error is errdefs.ErrNotFound.
func ReadStatus(host hostfs.Root, stateDir string) (Status, error) {
	st := Status{Mode: ModeDirectory, Reason: ReasonUnknown, Detail: "nothing has been staged on this host yet"}
	data, err := host.ReadFile(path.Join(stateDir, statusFile), 64<<10)
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(data, &st); err != nil {
		return st, fmt.Errorf("read %q: %w", path.Join(stateDir, statusFile), err)
	}
	return st, nil
}

// Status returns the mode in force.
func (s *Store) Status() Status { return s.status }

// chooseMode chooses the mode, prepares the directory for it and records it. The lock is held: no other
// process mounts or unmounts meanwhile.
func (s *Store) chooseMode() error {
	switch want := s.opts.Mode; want {
	case ModeDirectory:
		s.status = Status{Mode: ModeDirectory, Reason: ReasonConfigured, Detail: "the configuration asks for it"}
	case ModeAuto, ModeMount, "":
		err := s.makeSharedMount()
		if err != nil && want == ModeMount {
			return fmt.Errorf("stage sockets as mounts: %w", err)
		}
		s.status = Status{Mode: ModeMount}
		if err != nil {
			s.status = Status{Mode: ModeDirectory, Reason: ReasonUnavailable, Detail: diag.ErrorText(err)}
		}
	default:
		return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("stage sockets: invalid mode %q: must be auto, mount or directory", want))
	}
	data, err := json.Marshal(s.status)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(path.Join(s.dir, statusFile)); err == nil && string(old) == string(data) {
		return nil
	}
	return hostfs.ReplaceFile(path.Join(s.dir, statusFile), data, viewFile)
}

// makeSharedMount makes the directory of all containers a shared mount. The error says why
// mounts made in it would not reach containers.
func (s *Store) makeSharedMount() error {
	if !s.host.IsLive() && s.opts.Mode != ModeMount {
		return errdefs.ErrFailedPrecondition.WithMessage("host paths are taken below " + s.host.Dir())
	}
	dir := s.containersDir()
	around, on, err := hostfs.FindMount(dir)
	if err != nil {
		return err
	}
	if !around.Shared {
		if err := checkHostMountNamespace(); err != nil {
			return fmt.Errorf("%w, and %s is not shared with the host: mount the state directory with mountPropagation Bidirectional", err, around.Point)
		}
	}
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	// The clone is in no peer group, so that it gets one of its own. In the peer group of the
	// file system around it, each mount would appear twice.
	tree, err := cloneMount(fd, 0)
	if err != nil {
		return privilegeError("make a mount (Linux 5.12 is needed)", err)
	}
	defer unix.Close(tree)
	if on == nil {
		if err := attachMount(tree, dir, 0); err != nil {
			return privilegeError("bind "+dir+" on itself", err)
		}
	}
	if on == nil && !around.Shared || on != nil && !on.Shared {
		if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
			return privilegeError("make "+dir+" a shared mount", err)
		}
	}
	return nil
}

// privilegeError wraps an error of a mount operation, and says which privilege it needs.
func privilegeError(what string, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: this needs root with CAP_SYS_ADMIN", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// checkHostMountNamespace returns an error unless the process is in the mount namespace of
// process 1.
func checkHostMountNamespace() error {
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	if first, err := os.Readlink("/proc/1/ns/mnt"); err == nil && first == own && os.Getpid() != 1 {
		return nil
	}
	return errdefs.ErrFailedPrecondition.WithMessage("the process has a mount namespace of its own")
}
