// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"maps"
	"slices"

	"github.com/jackfield/jackfield/internal/base/glob"
)

// Authors of CNI plugins and device plugins disagree about the meaning of a socket's mode and path
// in device-info. A dialect corrects that for one network, resource or driver, so that the rest of
// Jackfield reads one meaning.
//
// Side is a side of the boundary between host and container.
type Side string

// The sides. The application runs in the container.
const (
	SideHost        Side = "host"
	SideApplication Side = "application"
	SideContainer   Side = "container"
)

// Specification is the dialect of the Device Information Specification itself. It applies unless
// another one is configured.
const Specification = "specification"

// DeviceMetadata is the dialect of device metadata. It applies to devices of resource claims unless
// another one is configured: the driver mounts the socket's directory, reports the path in the
// container, and expects the application to create the socket.
const DeviceMetadata = "device-metadata"

// Dialect changes the interpretation of some networks' or resources' device-info, or of some
// drivers' device metadata, where their author deviates from the specification.
type Dialect struct {
	Match DialectMatch
	// Use is the name of a built-in dialect, which the other fields modify.
	Use string
	// Creator, if not empty, is the side that creates the socket, regardless of mode or role:
	// SideHost or SideApplication.
	Creator Side
	// Path, if not empty, is the side whose path device-info contains: SideHost or SideContainer.
	Path Side
}

// DialectMatch selects networks, resources or drivers. An empty part matches everything; at least
// one part must be set. "*" matches any characters.
type DialectMatch struct {
	// Network is a pattern of namespace/name.
	Network string
	// Resource is a pattern of an extended resource's name.
	Resource string
	// Driver is a pattern for the name of a DRA driver. It excludes the other two.
	Driver string
}

// builtin is a built-in dialect.
type builtin struct {
	// view is the side whose mode and role the fields describe. In the specification it is the
	// application.
	view Side
	path Side
}

// builtins returns the dialects of known plugins. It is a function, because a package variable
// could be modified.
func builtins() map[string]builtin {
	return map[string]builtin{
		Specification: {view: SideApplication, path: SideHost},
		// Both write the switch's mode instead of the application's.
		"virtio-device-plugin": {view: SideHost, path: SideHost},
		"ovs-cni":              {view: SideHost, path: SideHost},
		// KubeVirt requires "client", and libvirt in the pod is the server.
		"kubevirt":     {view: SideHost, path: SideHost},
		DeviceMetadata: {view: SideApplication, path: SideContainer},
		// The path is the path in the container.
		"6wind": {view: SideApplication, path: SideContainer},
	}
}

// dialectNames returns the names of the built-in dialects, sorted.
func dialectNames() []string { return slices.Sorted(maps.Keys(builtins())) }

// CreatedBy returns the side that creates the socket, given device-info's mode (vhost-user: client,
// server) or role (memif: slave, master). By the specification (2.3.3, 2.3.4), client and slave
// connect to a socket that the host created, while server and master create it. The result is ""
// for any other word.
func (d Dialect) CreatedBy(modeOrRole string) Side {
	hostCreates, known := map[string]bool{"client": true, "slave": true, "server": false, "master": false}[modeOrRole]
	switch {
	case !known:
		return ""
	case d.Creator != "":
		return d.Creator
	case hostCreates != (builtins()[d.Use].view == SideHost):
		return SideHost
	}
	return SideApplication
}

// PathSide returns the side whose path device-info contains, SideHost or SideContainer.
func (d Dialect) PathSide() Side { return cmp.Or(d.Path, builtins()[d.Use].path, SideHost) }

// Dialect returns the dialect for an attachment: the first match in the file, or the default.
// network (namespace/name) and resource can be empty. driver is the driver of a claimed device that
// metadata describes, and "" for other devices.
func (c *Config) Dialect(network, resource, driver string) Dialect {
	for _, d := range c.Dialects {
		if d.Match.matches(network, resource, driver) {
			return d
		}
	}
	if driver != "" {
		return Dialect{Use: DeviceMetadata}
	}
	return Dialect{Use: Specification}
}

// matches reports whether the dialect applies to an attachment. A device of a claim is matched by its driver alone.
func (m DialectMatch) matches(network, resource, driver string) bool {
	if driver != "" || m.Driver != "" {
		return driver != "" && m.Driver != "" && matches(m.Driver, driver)
	}
	return matches(m.Network, network) && matches(m.Resource, resource)
}

func matches(pattern, name string) bool {
	g, err := glob.CompileName(pattern)
	return pattern == "" || err == nil && g.Match(name)
}
