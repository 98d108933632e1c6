// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"fmt"
	"path"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Mode is how sockets get into containers.
type Mode string

const (
	// ModeAuto is ModeMount where that works, and ModeDirectory elsewhere. A store's Status never has it.
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
