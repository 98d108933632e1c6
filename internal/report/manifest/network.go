// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/port/network"
)

const networkKind = "NetworkAttachmentDefinition"

// Network is a NetworkAttachmentDefinition with plugins of Jackfield, or one that no plugin can read.
type Network struct {
	Plugins int           // jackfield-cni's in it
	Ports   []policy.Port // that they create; a port without a bridge leaves it to the vswitch
	Err     error         // why CNI or jackfield-cni refuses the network; errdefs.ErrInvalidArgument
}

// addNetwork adds a NetworkAttachmentDefinition. jackfield-cni's own parser reads it. Without a configuration the node
// has it in a file. A fault of one network does not keep the other objects from being read.
func (o *Objects) addNetwork(data json.RawMessage, x *object) {
	o.Definitions++
	var n Network
	var definition struct{ Spec struct{ Config string } }
	err := json.Unmarshal(data, &definition)
	if err == nil && definition.Spec.Config != "" {
		var read network.Network
		read, err = network.Read(definition.Spec.Config, x.Metadata.Name)
		n.Plugins, n.Ports = read.Plugins, read.Ports
	}
	if err != nil {
		n.Err = fmt.Errorf("%s: spec.config: %w: %w", x.title(), err, errdefs.ErrInvalidArgument)
		if fault, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			n.Err = fmt.Errorf("%s: %s: must be a string, found a JSON %s: %w", x.title(), cmp.Or(fault.Field, "spec"),
				fault.Value, errdefs.ErrInvalidArgument)
		}
	}
	if n.Err != nil || n.Plugins > 0 {
		o.Networks[cmp.Or(x.Metadata.Namespace, o.namespace)+"/"+x.Metadata.Name] = n
	}
}

// NetworkPort is a port that a network of a pod asks for.
type NetworkPort struct {
	Network string // namespace/name
	policy.Port
	Err error // why jackfield-cni refuses the network or its port, whatever the policy; nil if it does not
}

// Name is the name of the port; of a network with a fault, its name.
func (p *NetworkPort) Name() string {
	if p.Switch == "" {
		return p.Network
	}
	return p.Port.String()
}

// Request is the port, or the network with a fault, in messages.
func (p *NetworkPort) Request() string {
	if p.Switch == "" {
		return "network " + diag.Quote(p.Network)
	}
	return fmt.Sprintf("port %s of network %s", p.Port, diag.Quote(p.Network))
}
