// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"slices"
	"strings"
)

// Limits on what one annotation may hold. Kubernetes bounds all annotations of
// an object together to 256 KiB; the other doors bound nothing.
const (
	// MaxValueBytes is the largest annotation value that is read, in bytes.
	MaxValueBytes = 64 << 10
	// MaxItems is the largest number of items in one annotation, and of
	// device requests in all annotations that apply to one container.
	MaxItems = 1024
)

// Requests is what one container asks for. The zero value asks for nothing
// beyond the default: the pod's networks, found on the node.
type Requests struct {
	// Devices are the device requests, in the order written: those of
	// devices.jackfield.dev first, then those of cdi.k8s.io/* by sorted key.
	Devices []Device
	// Networks says which of the pod's network attachments the container
	// gets sockets from.
	Networks Networks
}

// Request is what all requests carry: where it was written, and how much it is
// wanted.
type Request struct {
	// Key is the annotation's full key as found on the pod.
	Key string
	// Item is the item's text as written; for an object item, the text of
	// its device, network or interface field.
	Item string
	// Position is the item's place in the annotation's list, from 1.
	Position int
	// Optional turns a failure to deliver into a logged skip.
	Optional bool
}

// DeviceKind tells the forms of a device request apart.
type DeviceKind uint8

const (
	// CDI is a fully qualified CDI device name, vendor.com/class=name.
	CDI DeviceKind = iota + 1
	// Alias is a name whose vendor and class the node's configuration
	// knows, alias=name.
	Alias
	// Resource is an extended resource that the kubelet allocated to the
	// container, resource:NAME[/ID].
	Resource
)

// String returns the word used for the kind in messages.
func (k DeviceKind) String() string {
	switch k {
	case CDI:
		return "CDI device"
	case Alias:
		return "alias"
	case Resource:
		return "resource"
	default:
		return "unknown kind"
	}
}

// Device is one device request. Which of the fields below Kind are set depends
// on Kind.
type Device struct {
	Request
	Kind DeviceKind

	// Vendor and Class are set for CDI.
	Vendor, Class string
	// Alias is set for Alias.
	Alias string
	// Device is the device's name within its class, set for CDI and Alias.
	// The name "all" asks for every device of the class.
	Device string

	// Resource is the extended resource's name, with its domain, and ID the
	// one device asked for; an empty ID means every allocated one.
	Resource, ID string
}

// Name returns the request in its canonical form, which for every kind is also
// the form a person writes.
func (d Device) Name() string {
	switch d.Kind {
	case CDI:
		return d.Vendor + "/" + d.Class + "=" + d.Device
	case Alias:
		return d.Alias + "=" + d.Device
	case Resource:
		if d.ID == "" {
			return resourcePrefix + d.Resource
		}
		return resourcePrefix + d.Resource + "/" + d.ID
	default:
		return d.Item
	}
}

// NetworkMode says how a container's networks are chosen.
type NetworkMode uint8

const (
	// NetworksAuto takes every attachment of the pod that the node's policy
	// grants. It is the default.
	NetworksAuto NetworkMode = iota
	// NetworksNone takes none.
	NetworksNone
	// NetworksListed takes those of Networks.Items.
	NetworksListed
)

// String returns the keyword of the mode, or "list".
func (m NetworkMode) String() string {
	switch m {
	case NetworksAuto:
		return keywordAuto
	case NetworksNone:
		return keywordNone
	default:
		return "list"
	}
}

// Networks is the choice of network attachments.
type Networks struct {
	Mode NetworkMode
	// Key is the annotation that made the choice, empty when none did.
	Key string
	// Items are the networks chosen, in the order written. Set for
	// NetworksListed only, and then not empty.
	Items []Network
}

// Network chooses attachments of the pod. An item written as a bare word may
// be the name of a network in the pod's own namespace or the name of an
// interface: then both Name and Interface are set and either selects.
type Network struct {
	Request
	// Namespace of the network; empty means the pod's own.
	Namespace string
	// Name of the network (of its NetworkAttachmentDefinition).
	Name string
	// Interface is the interface's name in the pod.
	Interface string
}

// Selects reports whether n chooses the attachment of the given network and
// interface in a pod of the given namespace. The network is "namespace/name";
// one without a slash is taken as Multus writes it in file names,
// "namespace-name", or as a network that has no namespace at all.
func (n Network) Selects(podNamespace, network, iface string) bool {
	if n.Interface != "" && n.Interface == iface {
		return true
	}
	if n.Name == "" || network == "" {
		return false
	}
	namespace := n.Namespace
	if namespace == "" {
		namespace = podNamespace
	}
	if ns, name, ok := strings.Cut(network, "/"); ok {
		return ns == namespace && name == n.Name
	}
	if n.Namespace == "" && network == n.Name {
		return true
	}
	rest, ok := strings.CutPrefix(network, namespace)
	return ok && namespace != "" && rest != "" && rest[0] == '-' && rest[1:] == n.Name
}

// ExpandAliases returns r with each alias replaced by the CDI name it stands
// for, de-duplicated again, since nvidia=0 and nvidia.com/gpu=0 may be one
// device. The map is from alias to vendor.com/class. An alias it does not hold
// is an *Error, also for an optional request, since nobody can have meant it.
func (r Requests) ExpandAliases(aliases map[string]string) (Requests, error) {
	if !slices.ContainsFunc(r.Devices, func(d Device) bool { return d.Kind == Alias }) {
		return r, nil
	}
	var set deviceSet
	for _, d := range r.Devices {
		if d.Kind == Alias {
			vendor, class, ok := strings.Cut(aliases[d.Alias], "/")
			if !ok {
				return Requests{}, unknownAlias(d, aliases)
			}
			d.Kind, d.Vendor, d.Class, d.Alias = CDI, vendor, class, ""
		}
		set.add(d)
	}
	return Requests{Devices: set.devices, Networks: r.Networks}, nil
}

// deviceSet keeps device requests in order of first mention, each once.
type deviceSet struct {
	devices []Device
	index   map[string]int
}

// add appends d, or merges it with the same request made before. A request
// that is once required is required; the place that requires it is then the
// one to name in an error, while the order stays that of first mention.
func (s *deviceSet) add(d Device) {
	name := d.Name()
	if s.index == nil {
		s.index = make(map[string]int)
	}
	if at, ok := s.index[name]; ok {
		if s.devices[at].Optional && !d.Optional {
			s.devices[at].Request = d.Request
		}
		return
	}
	s.index[name] = len(s.devices)
	s.devices = append(s.devices, d)
}
