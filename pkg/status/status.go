// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"path"
	"slices"
	"time"
)

// Node is what a daemon tells.
type Node struct {
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Registered bool      `json:"registered"`        // with the runtime, now
	Runtime    *Runtime  `json:"runtime,omitempty"` // of the last registration
	Config     Config    `json:"config"`
	// Containers are those that run and were given something, by namespace, pod,
	// name and ID.
	Containers []Container `json:"containers"`
	// Missed are containers that run, asked for something and lack it, because they were
	// created while the daemon was not connected; in the same order. Their requests say
	// what would become of them now: "injected" is what the container would get.
	Missed []Container `json:"missed,omitempty"`
	// Sandboxes are the pods that live, as the runtime told: not only those that
	// were given something. By ID.
	Sandboxes []Sandbox `json:"sandboxes"`
	// Staging says how sockets get into containers: "mount" or "directory", and why
	// it is not "mount".
	Staging       string `json:"staging,omitempty"`
	StagingReason string `json:"stagingReason,omitempty"`
}

// Sandbox is a pod that lives.
type Sandbox struct {
	ID  string `json:"id"`
	UID string `json:"uid,omitempty"`
}

// Runtime is a container runtime as it names itself.
type Runtime struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	NRI     string `json:"nri,omitempty"` // "" where it is not known
}

// Config is the configuration in force.
type Config struct {
	File       string    `json:"file,omitempty"` // "" for the defaults
	Text       string    `json:"text,omitempty"` // the content of the file when it was read
	Generation uint64    `json:"generation"`
	Since      time.Time `json:"since"`
	Error      string    `json:"error,omitempty"` // why a newer one is not in force
}

// Container is one container and what it was given.
type Container struct {
	Since       time.Time `json:"since"` // when it was created
	Namespace   string    `json:"namespace"`
	Pod         string    `json:"pod"`
	PodUID      string    `json:"podUID,omitempty"`
	Sandbox     string    `json:"sandbox"`
	Container   string    `json:"container"`
	ContainerID string    `json:"containerID"`
	Generation  uint64    `json:"configGeneration"` // the configuration that decided
	Requests    []Request `json:"requests,omitempty"`
	Edits       []Edit    `json:"edits,omitempty"`
	// More says how much was left out of requests and edits, to keep a limit.
	More string `json:"more,omitempty"`
}

// Request is one thing that was asked for or found, and what became of it.
type Request struct {
	Request string   `json:"request"`        // as messages name it
	From    string   `json:"from"`           // annotation key, or device-info file
	File    string   `json:"file,omitempty"` // that describes it
	Rule    string   `json:"rule,omitempty"` // that granted it
	Outcome string   `json:"outcome"`        // injected, present, left alone, skipped, refused or failed
	Reason  string   `json:"reason,omitempty"`
	Audit   string   `json:"audit,omitempty"` // what mode enforce would have refused
	Notes   []string `json:"notes,omitempty"`
}

// Edit is one change of the container and where it comes from. Of a variable there
// is the name only: what it says may be a secret.
type Edit struct {
	What    string `json:"what"` // "device /dev/vfio/12", "mount /a from /b", "env NAME", "hook createRuntime /bin/x", ...
	Request string `json:"request"`
	File    string `json:"file,omitempty"`
	Field   string `json:"field,omitempty"`
	Rule    string `json:"rule,omitempty"`
}

// Sort puts containers in the order that Node has them in.
func Sort(cs []Container) {
	slices.SortFunc(cs, func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Container, b.Container), cmp.Compare(a.ContainerID, b.ContainerID))
	})
}

// Socket is the host path of the socket for a state directory.
func Socket(stateDir string) string { return path.Join(stateDir, "status.sock") }
