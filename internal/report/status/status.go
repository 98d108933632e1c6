// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/port/vswitch"
)

// Node is the status of a daemon. Get sets the remedies; the daemon does not send them.
type Node struct {
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Registered bool      `json:"registered"`        // with the runtime, now
	Runtime    *Runtime  `json:"runtime,omitempty"` // of the last registration
	Remedy     string    `json:"remedy,omitempty"`  // while it is not registered, or with a runtime that is not supported
	Config     Config    `json:"config"`
	// Containers are the running containers that have something injected, by namespace, pod,
	// name and ID.
	Containers []Container `json:"containers"`
	// Missed are the running containers that lack their requests, because they were
	// created while the daemon was not connected; in the same order. Their requests have the
	// outcome that they would have now: the container would get everything that is "injected".
	Missed []Container `json:"missed,omitempty"`
	// ReusedNumbers are the device numbers of running containers that lead to another device than the container was
	// given, by container and path.
	ReusedNumbers []ReusedNumber `json:"reusedNumbers,omitempty"`
	// RemovedDevices are the devices of running containers whose numbers lead to no device, by container and path.
	RemovedDevices []LostDevice `json:"removedDevices,omitempty"`
	// Sockets are those of running containers, by container and path, whichever adapter served it. SocketsError is
	// why they are not known.
	Sockets      []PlacedSocket `json:"sockets"`
	SocketsError string         `json:"socketsError,omitempty"`
	// Sandboxes are all pods that the runtime reported as living, by ID.
	Sandboxes []Sandbox `json:"sandboxes"`
	// Staging is how sockets are delivered: "mount" or "directory", and why it is not
	// "mount".
	Staging       string `json:"staging,omitempty"`
	StagingReason string `json:"stagingReason,omitempty"`
	// StagingReasonCode is the reason as a value: a staging.Reason.
	StagingReasonCode string `json:"stagingReasonCode,omitempty"`
	// Vswitches are the vswitches of the configuration, by name.
	Vswitches []vswitch.Status `json:"vswitches,omitempty"`
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
	NRI     string `json:"nri,omitempty"` // "" where it is unknown
}

// Limitation returns why containers of the runtime get nothing from the plugin; "" for a runtime that applies the
// adjustments of NRI plugins. dockerd applies variables and mounts only, and drops the rest without an error.
func (r *Runtime) Limitation() string {
	if r == nil || r.Name != "docker" {
		return ""
	}
	return "its NRI applies variables and mounts only, so containers with Jackfield's annotations are refused"
}

// Config is the configuration in force.
type Config struct {
	File       string    `json:"file,omitempty"`  // "" for the defaults
	Text       string    `json:"text,omitempty"`  // the content of the file when it was read
	Generation uint64    `json:"generation"`      // counts from 1, and grows with each configuration that comes into force
	Since      time.Time `json:"since"`           // when it came into force
	Error      string    `json:"error,omitempty"` // why a newer one is not in force
	Remedy     string    `json:"remedy,omitempty"`
}

// Container is one container with its injected edits.
type Container struct {
	Since       time.Time `json:"since"` // when it was created
	Namespace   string    `json:"namespace"`
	Pod         string    `json:"pod"`
	PodUID      string    `json:"podUID,omitempty"`
	Sandbox     string    `json:"sandbox"`
	Container   string    `json:"container"`
	ContainerID string    `json:"containerID"`
	Generation  uint64    `json:"configGeneration"` // the configuration in force when it was created
	Requests    []Request `json:"requests,omitempty"`
	Edits       []Edit    `json:"edits,omitempty"`
	// Devices are the device nodes of the requests, with the devices to which their numbers led then.
	Devices []engine.HeldDevice `json:"devices,omitempty"`
	// More says how many requests and edits were left out to keep a size limit.
	More string `json:"more,omitempty"`
}

// HasInjected reports whether something was injected, or the record omits the requests.
func (c *Container) HasInjected() bool {
	return c.More != "" || slices.ContainsFunc(c.Requests, func(r Request) bool { return r.Outcome == "injected" })
}

// Request is one request or found attachment, and its outcome.
type Request struct {
	Kind    string         `json:"kind,omitempty"` // a engine.RequestKind
	Name    string         `json:"name,omitempty"` // of the CDI device, network, resource or hook
	Request string         `json:"request"`        // both, as messages name it
	From    string         `json:"from"`           // annotation key, or device-info file
	File    string         `json:"file,omitempty"` // that describes it
	Rule    string         `json:"rule,omitempty"` // that granted it
	Outcome string         `json:"outcome"`        // injected, present, unmanaged, skipped, refused or failed
	Reason  string         `json:"reason,omitempty"`
	Audit   string         `json:"audit,omitempty"` // the denials that mode enforce would have made
	Notes   []string       `json:"notes,omitempty"`
	Asked   []policy.Asked `json:"asked,omitempty"` // the things that policy decided on
}

// Edit is one change of the container and its origin. A variable has only its name: the value
// may be a secret.
type Edit struct {
	Kind    string `json:"kind,omitempty"` // device, mount, env, hook, net device, group, intelRdt or memlock
	Name    string `json:"name,omitempty"` // in the container: a path, the name of a variable, a number
	What    string `json:"what"`           // both for people: "device /dev/vfio/12", "mount /a from /b", "hook createRuntime /bin/x", ...
	Request string `json:"request"`
	File    string `json:"file,omitempty"`
	Field   string `json:"field,omitempty"`
	Rule    string `json:"rule,omitempty"`
}

// LostDevice is a device node of a running container whose number no longer leads to the device that the container was
// given.
type LostDevice struct {
	Namespace   string    `json:"namespace,omitempty"`
	Pod         string    `json:"pod,omitempty"`
	Container   string    `json:"container,omitempty"`
	ContainerID string    `json:"containerID"`
	Path        string    `json:"path"`    // in the container
	Number      string    `json:"number"`  // MAJOR:MINOR
	Granted     string    `json:"granted"` // the device that the container was given
	Since       time.Time `json:"since"`   // when this was found
}

// Title names the container: NAMESPACE/POD/CONTAINER, or the ID where the names are not known.
func (d *LostDevice) Title() string {
	return cmp.Or(strings.Trim(d.Namespace+"/"+d.Pod+"/"+d.Container, "/"), d.ContainerID)
}

// RemovedText describes a device whose number leads to no device.
func (d *LostDevice) RemovedText() string {
	return fmt.Sprintf("%s cannot open %s (%s): %s was removed, or unbound from its driver", d.Title(), d.Path, d.Number,
		d.Granted)
}

// ReusedNumber is a device number of a running container that leads to another device now.
type ReusedNumber struct {
	LostDevice
	Now string `json:"now"` // the device that the container can open
}

// PlacedSocket is a socket of the host, or a directory for sockets, at its place in a container.
type PlacedSocket struct {
	Namespace   string    `json:"namespace,omitempty"` // "" with the other names where only the ID is known
	Pod         string    `json:"pod,omitempty"`
	Container   string    `json:"container,omitempty"`
	ContainerID string    `json:"containerID"`
	Sandbox     string    `json:"sandbox"`
	Path        string    `json:"path"` // in the container
	HostPath    string    `json:"hostPath"`
	State       string    `json:"state"`          // a staging.SocketState
	Since       time.Time `json:"since,omitzero"` // when the container got this socket
	Rebinds     int       `json:"rebinds"`        // since the daemon started
	Device      uint64    `json:"device,omitempty"`
	Inode       uint64    `json:"inode,omitempty"` // of the socket that the container has
	// Peers is the number of connections to the socket; null where no process that the reader sees listens at it.
	Peers *int `json:"peers"`
}

// Title names the container: NAMESPACE/POD/CONTAINER, or the ID where the names are not known.
func (s *PlacedSocket) Title() string {
	return cmp.Or(strings.Trim(s.Namespace+"/"+s.Pod+"/"+s.Container, "/"), s.ContainerID)
}

// Sort sorts containers in the order of Node.
func Sort(cs []Container) {
	slices.SortFunc(cs, func(a, b Container) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod),
			cmp.Compare(a.Container, b.Container), cmp.Compare(a.ContainerID, b.ContainerID))
	})
}

// Socket returns the host path of the socket for a state directory.
func Socket(stateDir string) string { return path.Join(stateDir, "status.sock") }

// Title names the container for messages: NAMESPACE/POD/CONTAINER, two spaces and the ID.
func (c *Container) Title() string {
	return strings.Trim(c.Namespace+"/"+c.Pod+"/"+c.Container, "/") + "  " + c.ContainerID
}

// Holder returns the container as a holder of its devices.
func (c *Container) Holder() engine.Holder {
	return engine.Holder{Namespace: c.Namespace, Pod: c.Pod, PodUID: c.PodUID, SandboxID: c.Sandbox,
		ContainerID: c.ContainerID, Container: c.Container, Devices: c.Devices}
}
