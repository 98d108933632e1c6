// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"maps"
	"slices"

	"github.com/jackfield/jackfield/internal/base/glob"
)

// Side is a side of the boundary between the host and the container.
type Side string

// The sides. The application is what runs in the container.
const (
	SideHost        Side = "host"
	SideApplication Side = "application"
	SideContainer   Side = "container"
)

// Specification is the dialect of the Device Information Specification itself,
// which holds where no other is configured.
const Specification = "specification"

// DeviceMetadata is the dialect of device metadata, which holds for devices of resource claims where
// no other is configured: drivers mount the directory of a socket themselves, say where it is in the
// container, and have the application create it.
const DeviceMetadata = "device-metadata"

// Dialect says how the device-info of some networks or resources, or the device metadata of some
// drivers, is to be read, where its author did not mean what the specification says.
type Dialect struct {
	Match DialectMatch
	// Use is the name of a built-in dialect.
	Use string
	// Creator, where not empty, is who makes the socket, whatever mode or
	// role says: SideHost or SideApplication.
	Creator Side
	// Path, where not empty, is whose path the device-info gives: SideHost
	// or SideContainer.
	Path Side
}

// DialectMatch says what a dialect is for. A part that is empty matches all;
// at least one is not. "*" stands for any characters.
type DialectMatch struct {
	// Network is a pattern of namespace/name.
	Network string
	// Resource is a pattern of an extended resource's name.
	Resource string
	// Driver is a pattern of the name of a driver of resource claims. It stands alone.
	Driver string
}

// builtin is what a built-in dialect does differently.
type builtin struct {
	// view is the side whose mode and role the fields describe. In the specification it is
	// the application's.
	view Side
	path Side
}

// builtins are the dialects met in the field. It is a function because a
// package variable could be changed.
func builtins() map[string]builtin {
	return map[string]builtin{
		Specification: {view: SideApplication, path: SideHost},
		// Both call the application's side by the name of the switch's.
		"virtio-device-plugin": {view: SideHost, path: SideHost},
		"ovs-cni":              {view: SideHost, path: SideHost},
		// Wants "client" and lets libvirt, in the pod, be the server.
		"kubevirt":     {view: SideHost, path: SideHost},
		DeviceMetadata: {view: SideApplication, path: SideContainer},
		// Gives the path as the container sees it.
		"6wind": {view: SideApplication, path: SideContainer},
	}
}

// dialectNames returns the names of the built-in dialects, sorted.
func dialectNames() []string { return slices.Sorted(maps.Keys(builtins())) }

// CreatedBy returns who makes the socket, SideHost or SideApplication, given
// the device-info's mode (vhost-user: client, server) or role (memif: slave,
// master). By the specification (2.3.3, 2.3.4) client and slave connect to a
// socket that the host made, server and master make it. Any other word gives "".
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

// PathSide returns whose path the device-info gives, SideHost or
// SideContainer.
func (d Dialect) PathSide() Side { return cmp.Or(d.Path, builtins()[d.Use].path, SideHost) }

// Dialect returns the dialect for an attachment of the given network
// (namespace/name) and resource, either of which may be empty: the first in
// the file that matches, else that of the specification. driver is that of a claim's device, which
// metadata describes, and "" for others.
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
