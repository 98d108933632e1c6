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
	// ContainerID is CNI's: the ID of the pod's sandbox.
	ContainerID string `json:"containerID"`
	// Interface is the attachment's interface name in the pod.
	Interface string `json:"interface"`
	// Network is the name in the network configuration.
	Network string `json:"network,omitempty"`
	// Namespace and Pod are empty outside Kubernetes.
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
}

// Port is one port of a virtual switch. Zero values leave the choice to the switch.
type Port struct {
	// Name is the port's name on the switch. PortName returns the name for an owner.
	Name  string `json:"name"`
	Owner Owner  `json:"owner"`
	Type  Type   `json:"type"`
	// Socket is the host path of the port's socket, at most 107 bytes.
	Socket string `json:"socket"`
	// SwitchListens says that the switch creates the socket. Otherwise the application creates it, and
	// the switch connects to it and tries again after each disconnection.
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
	// Rate limits what the container sends, in bits a second.
	Rate uint64 `json:"rate,omitempty"`
	// Fault is the switch's own message about a port that exists and is not usable. Only List sets it.
	Fault string `json:"-"`
}

// Driver creates ports on one switch. Every method returns when ctx ends. A switch that does not answer
// is an error with errdefs.ErrUnavailable. What the switch refuses is a *Refusal.
type Driver interface {
	// Probe checks that the switch accepts a connection. It changes nothing, and does not wait for an answer.
	Probe(ctx context.Context) error
	// Ensure creates the port, or changes it until it is as described, and returns when the switch reports
	// that the port is usable. The result is the port as List returns it then, with the whole owner; its
	// Socket may differ from what was asked where the switch decides the path. A port of this name without
	// Jackfield's mark, or of another owner, is an error with errdefs.ErrAlreadyExists. If Ensure fails, it
	// removes the port that it created, for which it takes at most CleanupTime after ctx has ended.
	Ensure(ctx context.Context, port Port) (Port, error)
	// Remove removes the owner's port. A missing port is no error.
	Remove(ctx context.Context, owner Owner) error
	// List returns the ports with Jackfield's mark, sorted by name. Only what the switch stores is
	// set; the owner may lack its network, namespace and pod.
	List(ctx context.Context) ([]Port, error)
}

// LeftoverRemover is a Driver whose creation of a port has several steps, of which the first have no mark of the owner.
type LeftoverRemover interface {
	// RemoveWithLeftovers removes the port as Remove does, and objects without a mark that an interrupted creation of
	// this port left. port is the port as it was requested.
	RemoveWithLeftovers(ctx context.Context, port Port) error
}

// RemovePort removes a port that was requested from the driver, also if its creation was interrupted.
func RemovePort(ctx context.Context, d Driver, port Port) error {
	if r, ok := d.(LeftoverRemover); ok {
		return r.RemoveWithLeftovers(ctx, port)
	}
	return d.Remove(ctx, port.Owner)
}

// Responder is a Driver of which List does not show that the switch works, because another process answers it.
type Responder interface {
	Driver
	// CheckResponding returns an error where the switch does not work on changes. The error is an *UnavailableError.
	CheckResponding(ctx context.Context) error
}

// SessionOpener is a Driver that can serve many calls on one connection to its switch.
type SessionOpener interface {
	// OpenSession returns a Driver with one connection, and a function that closes it. The connection ends with ctx.
	OpenSession(ctx context.Context) (session Driver, end func(), err error)
}

// CleanupTime bounds the removal of a port whose creation failed.
const CleanupTime = time.Second

// CleanUp calls remove, which removes what was created before err, also after ctx has ended. It returns err, with
// that of remove.
func CleanUp(ctx context.Context, err error, remove func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CleanupTime)
	defer cancel()
	if removeErr := remove(ctx); removeErr != nil {
		return fmt.Errorf("%w; what was created is not removed: %v", err, removeErr)
	}
	return err
}

// Watcher is a Driver that reports changes.
type Watcher interface {
	Driver
	// Watch calls changed after each connection to the switch, when a connection is lost, and whenever one
	// of Jackfield's ports may be missing or different. It connects again, until ctx ends. changed does not
	// block, and may be called from several goroutines.
	Watch(ctx context.Context, changed func()) error
}

// Switch is a switch of the node's configuration, as its driver reaches it.
type Switch struct {
	// Name is its name in the configuration.
	Name string
	// Endpoint is the host path of its API's socket.
	Endpoint string
	// Host is the file system that Endpoint and the ports' sockets are in.
	Host hostfs.Root
}

// Socket returns the path of the API's socket as this process sees it.
func (s Switch) Socket() string { return s.Host.Path(s.Endpoint) }

// Refuse returns the refusal of a port.
func (s Switch) Refuse(p Port, field, said, remedy string, kind error) error {
	return &Refusal{Switch: s.Name, Port: p.Name, Field: field, Said: said, Remedy: remedy, Kind: kind}
}

// Refusal is an error of a switch that answered.
type Refusal struct {
	// Switch is the switch's name in the node's configuration. Port is the port's name, empty if the refusal concerns
	// no single port.
	Switch, Port string
	// Field is the key whose value the switch refuses: of the network's configuration ("bridge", "mtu") or
	// of the node's ("vswitches.ovs0.endpoint").
	Field string
	// Said is the switch's own message.
	Said string
	// Remedy says what the administrator can do.
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

// UnavailableError is the error of a switch that does not answer. It is an errdefs.ErrUnavailable.
type UnavailableError struct {
	// Switch is the switch's name in the node's configuration. Endpoint is the address of its API.
	Switch, Endpoint string
	Err              error
	// Down says that no process listens on Endpoint, so the call requested nothing.
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

// PortName returns the name of the owner's port, which depends on ContainerID and Interface alone.
func PortName(o Owner) string { return name.Port(o.ContainerID, o.Interface) }

// WatchConnections runs watch, which watches one connection to a switch until it ends, again and again until ctx ends.
// pause is the time before the next attempt to connect.
func WatchConnections(ctx context.Context, pause time.Duration, watch func()) error {
	for ctx.Err() == nil {
		watch()
		deadline.Sleep(ctx, pause)
	}
	return ctx.Err()
}
