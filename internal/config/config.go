// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

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
	// Multus names what Multus leaves on the node.
	Multus  struct{ CacheDir string }
	Kubelet Kubelet
	Hook    Hook
	// CNI lists what CNI networks can choose.
	CNI CNI
	// Runtime names the CRI socket; "" is the default of the runtime that the NRI plugin is registered with.
	Runtime struct{ Socket string }
	// Missed says what happens to running containers that asked for something and have none of it, because
	// the NRI plugin was not connected when they were created.
	Missed Missed
	// StateDir is where Jackfield keeps what it creates for containers.
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
	// AuditLog is the file in which the NRI plugin records what it delivered and denied; empty for none.
	AuditLog struct{ File string }

	file   string
	text   string
	fields map[string]*yaml.Node // the values that the file has
}

// CDI says where device specifications are.
type CDI struct {
	// SpecDirs in ascending priority.
	SpecDirs []string
	// Aliases are from alias to vendor.com/class.
	Aliases map[string]string
	// Extensions of the files that are read, with the dot.
	Extensions []string
}

// Sockets configures where sockets may be and how containers get access to them.
type Sockets struct {
	// Roots are the directories below which sockets are delivered from.
	Roots []string
	// Access is the method by which a container that does not run as root gets access to a socket, a
	// staging.AccessMethod: acl, group or owner.
	Access string
	// Staging is how sockets are delivered, a staging.Mode: auto, mount or directory.
	Staging string
	// User is the user of containers for which the runtime reports none: "UID" or "UID:GID", "" for
	// unknown.
	User string
	// DirectorySize bounds each directory created for an application's sockets by its own file system: a
	// size such as "1Mi", "" for plain directories.
	DirectorySize string
	// SELinuxLabel is the label of sockets where SELinux is enabled; "" leaves it unchanged.
	SELinuxLabel string
	// Named are the sockets that containers request by name, by that name.
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

// DirectoryBytes is DirectorySize in bytes, 0 where it is "".
func (s *Sockets) DirectoryBytes() uint64 {
	size, _ := quantity.ParseSize(s.DirectorySize)
	return size
}

// DeviceInfo names the directories of device-info files (Device Information
// Specification 1.1.0, section 4).
type DeviceInfo struct {
	// CNIDir holds the files of network attachments, DPDir those of device
	// plugins.
	CNIDir, DPDir string
}

// Kubelet names the kubelet's interfaces.
type Kubelet struct {
	// PodResourcesSocket is the socket of the Pod Resources API.
	PodResourcesSocket string
	// PluginsDir holds the data directories of the kubelet's plugins, where drivers of dynamic
	// resource allocation write metadata of the devices of resource claims.
	PluginsDir string
	// Required lets nothing but the kubelet say whose a device is: without its
	// socket no container gets one.
	Required bool
}

// Missed says what the NRI plugin does about containers that were created without it.
type Missed string

// A missed container is reported, or reported and stopped, so that the kubelet creates it
// again.
const (
	MissedReport Missed = "report"
	MissedEvict  Missed = "evict"
)

// Undeliverable says what the OCI hook does about an edit that comes too late for
// its stage.
type Undeliverable string

// What happens if an edit cannot be delivered: the container fails, or starts without the edit.
const (
	UndeliverableError Undeliverable = "error"
	UndeliverableWarn  Undeliverable = "warn"
)

// Hook is for the OCI hook.
type Hook struct {
	Undeliverable Undeliverable
	// AskedBy is an annotation, KEY=VALUE, that a container outside of pods needs to ask for anything; ""
	// for none. The annotations of an image look like the user's, but an image does not know the value.
	AskedBy string
}

// Policy is the node's policy. See [Config.CompilePolicy].
type Policy struct {
	Mode  policy.Mode
	Rules []policy.Rule
}

// Validate configures which injections of other NRI plugins must comply with the policy.
type Validate struct {
	Devices, Mounts bool
	// Except are plugins whose injections are not checked, as NN-name.
	Except []string
}

// Metrics configures where the NRI plugin serves metrics and health.
type Metrics struct {
	// Listen is HOST:PORT, unix:PATH with a host path, or "" for nowhere.
	Listen string
	// PProf serves the Go profiles as well.
	PProf bool
}

// UnixListen begins the address of a UNIX socket.
const UnixListen = "unix:"

// Default returns the configuration without a file. It grants nothing.
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
		Kubelet:  Kubelet{PodResourcesSocket: "/var/lib/kubelet/pod-resources/kubelet.sock", PluginsDir: "/var/lib/kubelet/plugins"},
		Hook:     Hook{Undeliverable: UndeliverableError},
		CNI:      defaultCNI(),
		Missed:   MissedReport,
		StateDir: "/run/jackfield",
		Policy:   Policy{Mode: policy.Enforce},
	}
	c.Multus.CacheDir = "/var/lib/cni/multus"
	return c
}

// File returns the path of the parsed file, "" for Default.
func (c *Config) File() string { return c.file }

// Text returns the parsed text, "" for Default.
func (c *Config) Text() string { return c.text }

// Position returns the place of a field such as policy.rules[0].allow.sockets[1], as file:line:column. For a
// field that is not in the file it is the place of the innermost field around it. For Default it is
// "".
func (c *Config) Position(field string) string {
	if line, column := c.LineColumn(field); line > 0 {
		return fmt.Sprintf("%s:%d:%d", c.file, line, column)
	}
	return c.file
}

// LineColumn returns [Config.Position] as numbers from 1; 0 if the field has no place in the file.
func (c *Config) LineColumn(field string) (line, column int) {
	for ; field != ""; field = parent(field) {
		if node := c.fields[field]; node != nil {
			return node.Line, node.Column
		}
	}
	return 0, 0
}

// IsWritten reports whether the file itself has a field. Otherwise its value is the default.
func (c *Config) IsWritten(field string) bool { return c.fields[field] != nil }

// parent returns the field around a field.
func parent(field string) string {
	return field[:max(strings.LastIndexAny(field, ".["), 0)]
}
