// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/deadline"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Type is the protocol of a port's socket.
type Type string

const (
	VhostUser Type = "vhost-user"
	Memif     Type = "memif"
)

// Owner identifies the network attachment that a port belongs to.
type Owner struct {
	// ContainerID is CNI's container ID, which is the ID of the pod's sandbox.
	ContainerID string `json:"containerID"`
	// Interface is the attachment's interface name in the pod.
	Interface string `json:"interface"`
	// Network is the name in the network configuration.
	Network string `json:"network,omitempty"`
	// Namespace and Pod are empty outside Kubernetes.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
}

// Port is one port of a virtual switch. For zero values the switch chooses.
type Port struct {
	// Name is the port's name on the switch. PortName returns the name for an owner.
	Name  string `json:"name"`
	Owner Owner  `json:"owner"`
	Type  Type   `json:"type"`
	// Socket is the host path of the port's socket, at most 107 bytes.
	Socket string `json:"socket"`
	// SwitchListens is set if the switch creates the socket. Otherwise the application creates it,
	// and the switch connects to it and reconnects after each disconnection.
	SwitchListens bool `json:"switchListens,omitempty"`
	// Bridge is a bridge of Open vSwitch, a domain of grout or the number of a bridge domain of VPP.
	Bridge string `json:"bridge,omitempty"`
	// MAC is the container's address, in colon form.
	MAC string `json:"mac,omitempty"`
	// Addresses are the container's addresses in CIDR form.
	Addresses []string `json:"addresses,omitempty"`
	// MTU is in bytes.
	MTU int `json:"mtu,omitempty"`
	// VLAN is the tag of the port's untagged frames, 1 to 4094.
	VLAN int `json:"vlan,omitempty"`
	// Queues is the number of pairs of a receive and a transmit queue.
	Queues int `json:"queues,omitempty"`
	// Rate limits the container's transmitted traffic, in bits a second.
	Rate uint64 `json:"rate,omitempty"`
	// Fault is the switch's own message about an existing but unusable port. Only List sets it.
	Fault string `json:"-"`
}

// Driver creates ports on one switch. Every method returns when ctx ends. The error for an
// unresponsive switch is errdefs.ErrUnavailable. The error for a request that the switch rejects is
// a *Refusal.
type Driver interface {
	// Probe checks that the switch accepts a connection. It changes nothing, and does not wait for
	// a response.
	Probe(ctx context.Context) error
	// Ensure creates the port, or changes it to the description, and returns once the switch
	// reports that the port is usable. It returns the port as List would, with the complete owner.
	// Its Socket can differ from the requested path if the switch chooses the path. A port of this
	// name without Jackfield's mark, or with another owner, is an error with
	// errdefs.ErrAlreadyExists. If Ensure fails, it removes the port that it created, which takes
	// at most CleanupTime after the end of ctx.
	Ensure(ctx context.Context, port Port) (Port, error)
	// Remove removes the owner's port. A missing port is no error.
	Remove(ctx context.Context, owner Owner) error
	// List returns the ports with Jackfield's mark, sorted by name. It sets only properties that
	// the switch stores; the owner can lack network, namespace and pod.
	List(ctx context.Context) ([]Port, error)
}

// LeftoverRemover is a Driver that creates a port in several steps, of which the first leave
// objects without the owner's mark.
type LeftoverRemover interface {
	// RemoveWithLeftovers removes the port like Remove, and also the unmarked objects that an
	// interrupted creation of this port left behind. port is the requested port.
	RemoveWithLeftovers(ctx context.Context, port Port) error
}

// RemovePort removes a port that was requested from the driver, even if its creation was
// interrupted.
func RemovePort(ctx context.Context, d Driver, port Port) error {
	if r, ok := d.(LeftoverRemover); ok {
		return r.RemoveWithLeftovers(ctx, port)
	}
	return d.Remove(ctx, port.Owner)
}

// Responder is a Driver whose List does not prove that the switch works, because another process
// responds to it.
type Responder interface {
	Driver
	// CheckResponding returns an *UnavailableError if the switch does not process changes.
	CheckResponding(ctx context.Context) error
}

// SessionOpener is a Driver that can serve many calls on one connection to its switch.
type SessionOpener interface {
	// OpenSession returns a Driver with one connection, and a function that closes it. The connection ends with ctx.
	OpenSession(ctx context.Context) (session Driver, end func(), err error)
}

// CleanupTime bounds the removal of a port whose creation failed.
const CleanupTime = time.Second

// CleanUp calls remove to undo a partial creation that failed with err, even after ctx has ended.
// It returns err, joined with the error of remove.
func CleanUp(ctx context.Context, err error, remove func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanupTime)
	defer cancel()
	if removeErr := remove(ctx); removeErr != nil {
		return fmt.Errorf("%w; cannot undo the partial creation: %v", err, removeErr)
	}
	return err
}

// Watcher is a Driver that reports changes.
type Watcher interface {
	Driver
	// Watch calls changed after each connection to the switch, when a connection is lost, and
	// whenever one of Jackfield's ports can be missing or different. It reconnects until ctx ends.
	// changed must not block, and can be called from several goroutines.
	Watch(ctx context.Context, changed func()) error
}

// Switch holds the settings of one switch that its driver needs.
type Switch struct {
	// Name is the switch's name in the node's configuration.
	Name string
	// Endpoint is the host path of the switch's API socket.
	Endpoint string
	// Host is the root of Endpoint and of the ports' sockets.
	Host hostfs.Root
}

// Socket returns the path of the API's socket for this process.
func (s Switch) Socket() string { return s.Host.Path(s.Endpoint) }

// Refuse returns the error for a rejected port.
func (s Switch) Refuse(p Port, field, said, remedy string, kind error) error {
	return &Refusal{Switch: s.Name, Port: p.Name, Field: field, Said: said, Remedy: remedy, Kind: kind}
}

// Refusal is the error for a request that the switch, or the driver on its behalf, rejects.
type Refusal struct {
	// Switch is the switch's name in the node's configuration. Port is the port's name, empty if the refusal concerns
	// no single port.
	Switch, Port string
	// Field is the key with the rejected value. It belongs to the network's configuration
	// ("bridge", "mtu") or to the node's ("vswitches.ovs0.endpoint").
	Field string
	// Said is the switch's own message.
	Said string
	// Remedy is the administrator's next step.
	Remedy string
	// Kind is a sentinel of containerd/errdefs. It is not part of the message.
	Kind error
}

func (r *Refusal) Error() string {
	text := fmt.Sprintf("vswitch %q refuses port %q", r.Switch, r.Port)
	if r.Port == "" {
		text = fmt.Sprintf("vswitch %q refuses the request", r.Switch)
	}
	for _, part := range []string{r.Field, r.Said, r.Remedy} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

func (r *Refusal) Unwrap() error { return r.Kind }

// UnavailableError is the error of an unresponsive switch. It is an errdefs.ErrUnavailable.
type UnavailableError struct {
	// Switch is the switch's name in the node's configuration. Endpoint is the address of its API.
	Switch, Endpoint string
	Err              error
	// Down is set if no process listens on Endpoint, so the call cannot have changed anything.
	Down bool
}

// IsDown reports whether a call failed because no process listens on the switch's endpoint.
func IsDown(err error) bool {
	var unavailable *UnavailableError
	return errors.As(err, &unavailable) && unavailable.Down
}

// IsNotListening reports whether an error of connecting to a UNIX socket means that no process listens on it.
func IsNotListening(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED)
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("vswitch %q is unreachable on %s: %v", e.Switch, e.Endpoint, e.Err)
}

func (e *UnavailableError) Unwrap() []error { return []error{errdefs.ErrUnavailable, e.Err} }

// PortName returns the name of the owner's port. It depends only on ContainerID and Interface, so
// Remove can derive it.
func PortName(o Owner) string { return name.Port(o.ContainerID, o.Interface) }

// WatchConnections calls watch, which watches one connection until it ends, repeatedly until ctx
// ends. pause is the time between two connection attempts.
func WatchConnections(ctx context.Context, pause time.Duration, watch func()) error {
	for ctx.Err() == nil {
		watch()
		deadline.Sleep(ctx, pause)
	}
	return ctx.Err()
}
