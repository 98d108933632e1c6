// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"cmp"
	"fmt"
	"strings"
)

// Limits of one annotation. Kubernetes limits all annotations of
// an object together to 256 KiB; the other adapters have no limit.
const (
	// MaxValueBytes bounds an annotation value, in bytes.
	MaxValueBytes = 64 << 10
	// MaxItems bounds the items in one annotation, and the device requests in all annotations that
	// apply to one container.
	MaxItems = 1024
)

// Requests are the requests of one container. The zero value requests only the default: the pod's
// networks that are found on the node.
type Requests struct {
	// Devices are the device requests in their written order: devices.jackfield.dev first, then
	// cdi.k8s.io/* by sorted key.
	Devices []Device
	// Networks selects the pod's network attachments whose sockets the container receives.
	Networks Networks
}

// Request is the common part of all requests: its place, and whether it is optional.
type Request struct {
	// Key is the annotation's full key on the pod.
	Key string
	// Item is the item's text as written; for an object, the text of its device, network or
	// interface field.
	Item string
	// Position is the item's place in the annotation's list, from 1.
	Position int
	// Optional requests are skipped and logged if they cannot be delivered.
	Optional bool
}

// DeviceKind is the form of a device request.
type DeviceKind uint8

const (
	// CDI is a fully qualified CDI device name, vendor.com/class=name.
	CDI DeviceKind = iota + 1
	// Alias is a name whose vendor and class are in the node's configuration, alias=name.
	Alias
	// Resource is an extended resource that the kubelet allocated to the
	// container, resource:NAME[/ID].
	Resource
	// NamedSocket is a named socket of the node's configuration, socket:NAME.
	NamedSocket
)

// Device is one device request. Its item is in the canonical form of its kind.
type Device struct {
	Request
	Kind DeviceKind

	// Name is the CDI name, alias=name, the extended resource's name with its domain, or the
	// socket's name. CDI's device name "all" requests every device of the class.
	Name string
	// ID is one device of a resource; empty for every allocated device.
	ID string
}

// NetworkMode is the selection method for a container's networks.
type NetworkMode uint8

const (
	// NetworksAuto selects every attachment of the pod that the node's policy grants. It is the
	// default.
	NetworksAuto NetworkMode = iota
	// NetworksNone selects none.
	NetworksNone
	// NetworksListed selects the networks in Networks.Items.
	NetworksListed
)

// Networks selects network attachments.
type Networks struct {
	Mode NetworkMode
	// Key is the annotation; empty without one.
	Key string
	// Items are the networks in their written order. They are set, and not empty, only for
	// NetworksListed.
	Items []Network
}

// Network selects attachments of the pod. A bare word can be the name of a network in the pod's own
// namespace, or the name of an interface. Both Name and Interface are then set, and either one
// selects.
type Network struct {
	Request
	// Namespace of the network; empty means the pod's own.
	Namespace string
	// Name of the network (of its NetworkAttachmentDefinition).
	Name string
	// Interface is the interface's name in the pod.
	Interface string
}

// Selects reports whether n selects the attachment of the given network and interface in a pod of
// the given namespace. The network is "namespace/name". Without a slash, it is "namespace-name",
// like in Multus' file names, or a network without a namespace.
func (n Network) Selects(podNamespace, network, iface string) bool {
	if n.Interface != "" && n.Interface == iface {
		return true
	}
	if n.Name == "" || network == "" {
		return false
	}
	namespace := cmp.Or(n.Namespace, podNamespace)
	if ns, name, ok := strings.Cut(network, "/"); ok {
		return ns == namespace && name == n.Name
	}
	if n.Namespace == "" && network == n.Name {
		return true
	}
	rest, ok := strings.CutPrefix(network, namespace)
	return ok && namespace != "" && rest != "" && rest[0] == '-' && rest[1:] == n.Name
}

// ExpandAliases returns r with each alias replaced by its CDI name, without duplicates, because
// nvidia=0 and nvidia.com/gpu=0 can be one device. aliases maps an alias to vendor.com/class. An
// unknown alias is an *Error even for an optional request, because it is a mistake.
func (r Requests) ExpandAliases(aliases map[string]string) (Requests, error) {
	var set deviceSet
	for _, d := range r.Devices {
		if d.Kind == Alias {
			alias, name, _ := strings.Cut(d.Name, "=")
			kind, ok := aliases[alias]
			if !ok {
				return Requests{}, d.newError(UnknownAlias(alias, name, aliases))
			}
			d.Kind, d.Name = CDI, kind+"="+name
		}
		if err := set.addDevice(d); err != nil {
			return Requests{}, err
		}
	}
	return Requests{Devices: set.devices, Networks: r.Networks}, nil
}

// deviceSet holds device requests in the order of their first mention, without duplicates.
type deviceSet struct {
	devices []Device
	index   map[Device]int // key is the device without its Request
}

// addDevice appends d, within the limit for all annotations together, or merges it with an earlier
// equal request. If one of them is required, the merged request is required, and errors refer to
// the place that requires it.
func (s *deviceSet) addDevice(d Device) error {
	identity := d
	identity.Request = Request{}
	if s.index == nil {
		s.index = make(map[Device]int)
	}
	if at, ok := s.index[identity]; ok {
		if s.devices[at].Optional && !d.Optional {
			s.devices[at].Request = d.Request
		}
		return nil
	}
	if len(s.devices) == MaxItems {
		return d.newError(fmt.Sprintf("more than %d devices are requested in all: request all devices of a kind as "+
			"vendor.com/class=all, or declare one device with the edits of several", MaxItems))
	}
	s.index[identity] = len(s.devices)
	s.devices = append(s.devices, d)
	return nil
}
