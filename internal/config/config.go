// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/jsontree"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// DefaultPath is the path of the configuration file.
const DefaultPath = "/etc/jackfield/config.yaml"

// Config is the node's configuration. All paths are host paths.
type Config struct {
	CDI        CDI
	Sockets    Sockets
	DeviceInfo DeviceInfo
	// Multus locates the files that Multus leaves on the node.
	Multus  struct{ CacheDir string }
	Kubelet Kubelet
	Hook    Hook
	// CNI lists the values that CNI networks can choose.
	CNI CNI
	// Runtime locates the CRI socket. "" is the default socket of the runtime that the NRI plugin
	// is registered with.
	Runtime struct{ Socket string }
	// Missed is the treatment of running containers that lack their requested items, because the
	// NRI plugin was not connected when they were created.
	Missed Missed
	// StateDir is the directory for everything that Jackfield creates for containers.
	StateDir string
	// Dialects are tried in order; the first that matches applies.
	Dialects []Dialect
	// Vswitches are the switches on which Jackfield creates ports. Their names are unique.
	Vswitches []Vswitch
	Policy    Policy
	Validate  Validate
	// Compat enables the annotations of NRI's sample plugin device-injector.
	Compat struct{ DeviceInjector bool }
	// Hooks are the hooks.d directories, oci-hooks(5), that the NRI plugin reads, in ascending precedence.
	Hooks   struct{ Dirs []string }
	Metrics Metrics
	// AuditLog is the file in which the NRI plugin records deliveries and denials; empty for none.
	AuditLog struct{ File string }

	file   string
	text   string
	fields map[string]*jsontree.Node // the values in the file
}

// CDI locates the device specifications.
type CDI struct {
	// SpecDirs in ascending priority.
	SpecDirs []string
	// Aliases maps an alias to vendor.com/class.
	Aliases map[string]string
	// Extensions are the extensions of specification files, with the dot.
	Extensions []string
}

// Sockets configures the places of sockets, and the access of containers to them.
type Sockets struct {
	// Roots are the directories whose sockets can be delivered.
	Roots []string
	// Access is the method that grants a container without root access to a socket, a
	// staging.AccessMethod: acl, group or owner.
	Access string
	// Staging is the method of delivery, a staging.Mode: auto, mount or directory.
	Staging string
	// User is the user of containers for which the runtime reports none: "UID" or "UID:GID"; "" for
	// unknown.
	User string
	// DirectorySize bounds each directory for an application's sockets by its own file system. It
	// is a size such as "1Mi"; "" for plain directories.
	DirectorySize string
	// SELinuxLabel is the label of sockets if SELinux is enabled; "" leaves labels unchanged.
	SELinuxLabel string
	// Named holds the sockets that containers request by name, by that name.
	Named map[string]NamedSocket
}

// UserIDs returns the numbers in User; ok is false without a user. The GID defaults to the UID.
func (s *Sockets) UserIDs() (uid, gid uint32, ok bool) {
	u, g, both := strings.Cut(s.User, ":")
	if !both {
		g = u
	}
	a, err := strconv.ParseUint(u, 10, 32)
	b, err2 := strconv.ParseUint(g, 10, 32)
	return uint32(a), uint32(b), err == nil && err2 == nil
}

// DirectoryBytes returns DirectorySize in bytes, or 0 if it is "".
func (s *Sockets) DirectoryBytes() uint64 {
	size, _ := quantity.ParseSize(s.DirectorySize)
	return size
}

// DeviceInfo locates the directories of device-info files (Device Information Specification 1.1.0,
// section 4).
type DeviceInfo struct {
	// CNIDir holds the files of network attachments, DPDir the files of device plugins.
	CNIDir, DPDir string
}

// Kubelet locates the kubelet's interfaces.
type Kubelet struct {
	// PodResourcesSocket is the socket of the Pod Resources API.
	PodResourcesSocket string
	// PodsSocket is the socket of the Pods API, which kubelets from 1.37 serve. Nothing depends on it.
	PodsSocket string
	// PluginsDir holds the data directories of the kubelet's plugins, where DRA drivers write the
	// metadata of claimed devices.
	PluginsDir string
	// Required accepts only the kubelet as the source of device ownership. Without its socket no
	// container receives a device.
	Required bool
}

// Missed is the treatment of containers that were created without the NRI plugin.
type Missed string

// A missed container is reported, or reported and evicted, so that the kubelet re-creates its pod.
const (
	MissedReport Missed = "report"
	MissedEvict  Missed = "evict"
)

// Undeliverable is the OCI hook's treatment of an edit that is too late for its stage.
type Undeliverable string

// The container fails, or starts without the edit.
const (
	UndeliverableError Undeliverable = "error"
	UndeliverableWarn  Undeliverable = "warn"
)

// Hook configures the OCI hook.
type Hook struct {
	Undeliverable Undeliverable
	// AskedBy is an annotation, KEY=VALUE, that a container outside of pods must have to request
	// anything; "" for none. An image can set annotations like a user, but its author does not know
	// the value.
	AskedBy string
}

// Policy is the node's policy. See [Config.CompilePolicy].
type Policy struct {
	Mode  policy.Mode
	Rules []policy.Rule
}

// Validate selects the injections of other NRI plugins that must comply with the policy.
type Validate struct {
	Devices, Mounts bool
	// Except lists plugins, as NN-name, whose injections are not checked.
	Except []string
}

// Metrics is the address at which the NRI plugin serves metrics and health.
type Metrics struct {
	// Listen is HOST:PORT, unix:PATH with a host path, or "" for no server.
	Listen string
	// PProf additionally serves the Go profiles.
	PProf bool
}

// UnixListen begins the address of a UNIX socket.
const UnixListen = "unix:"

// Default returns the configuration of a node without a file. It grants nothing.
func Default() *Config {
	c := &Config{
		CDI: CDI{
			SpecDirs: []string{"/etc/cdi", "/var/run/cdi"},
			Aliases: map[string]string{
				"amd":    "amd.com/gpu",
				"intel":  "intel.com/gpu",
				"nvidia": "nvidia.com/gpu",
			},
			Extensions: []string{".json", ".yaml"},
		},
		Sockets: Sockets{
			Roots:  []string{"/var/run/jackfield/sockets"},
			Access: "acl", Staging: "auto",
		},
		DeviceInfo: DeviceInfo{
			CNIDir: "/var/run/k8s.cni.cncf.io/devinfo/cni",
			DPDir:  "/var/run/k8s.cni.cncf.io/devinfo/dp",
		},
		Kubelet: Kubelet{PodResourcesSocket: "/var/lib/kubelet/pod-resources/kubelet.sock",
			PodsSocket: "/var/lib/kubelet/pods-api/pods-api.sock",
			PluginsDir: "/var/lib/kubelet/plugins"},
		Hook:     Hook{Undeliverable: UndeliverableError},
		CNI:      defaultCNI(),
		Missed:   MissedReport,
		StateDir: "/run/jackfield",
		Policy:   Policy{Mode: policy.Enforce},
	}
	c.Multus.CacheDir = "/var/lib/cni/multus"
	return c
}

// File returns the path of the parsed file; "" for Default.
func (c *Config) File() string { return c.file }

// Text returns the parsed text; "" for Default.
func (c *Config) Text() string { return c.text }

// Position returns the place of a field such as policy.rules[0].allow.sockets[1], as
// file:line:column. For a field that is not in the file, it is the place of the innermost enclosing
// field. For Default it is "".
func (c *Config) Position(field string) string {
	if line, column := c.LineColumn(field); line > 0 {
		return fmt.Sprintf("%s:%d:%d", c.file, line, column)
	}
	return c.file
}

// LineColumn returns [Config.Position] as numbers from 1, or 0 if the field has no place in the
// file.
func (c *Config) LineColumn(field string) (line, column int) {
	for ; field != ""; field = parent(field) {
		if node := c.fields[field]; node != nil {
			return node.Line, node.Column
		}
	}
	return 0, 0
}

// IsWritten reports whether the file sets a field. Otherwise its value is the default.
func (c *Config) IsWritten(field string) bool { return c.fields[field] != nil }

// parent returns the enclosing field.
func parent(field string) string {
	return field[:max(strings.LastIndexAny(field, ".["), 0)]
}
