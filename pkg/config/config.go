// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/quantity"
)

// DefaultPath is where the configuration file is looked for.
const DefaultPath = "/etc/jackfield/config.yaml"

// Config is the node's configuration. All paths are host paths.
type Config struct {
	CDI        CDI
	Sockets    Sockets
	DeviceInfo DeviceInfo
	Multus     Multus
	Kubelet    Kubelet
	Hook       Hook
	Runtime    Runtime
	// Missed is what becomes of running containers that asked for something, have none
	// of it, and were created while the NRI plugin was not connected.
	Missed Missed
	// StateDir is where Jackfield keeps what it makes for containers.
	StateDir string
	// Dialects are tried in order; the first that matches applies.
	Dialects []Dialect
	Policy   Policy
	Validate Validate
	Compat   Compat
	Hooks    Hooks
	Metrics  Metrics
	AuditLog AuditLog

	file      string
	text      string
	positions map[string]position
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

// Access is the way in which a container that does not run as root gets at a
// socket.
type Access string

// The ways of access.
const (
	AccessACL   Access = "acl"
	AccessGroup Access = "group"
	AccessOwner Access = "owner"
)

// Staging is how sockets get into containers.
type Staging string

// The ways of staging; see pkg/staging.
const (
	StagingAuto      Staging = "auto"
	StagingMount     Staging = "mount"
	StagingDirectory Staging = "directory"
)

// Sockets says where sockets may be and how containers get at them.
type Sockets struct {
	// Roots are the directories below which sockets are delivered from.
	Roots   []string
	Access  Access
	Staging Staging
	// User is whom a container runs as where the runtime does not say: "UID" or
	// "UID:GID", "" for nobody's knowing.
	User string
	// DirectorySize bounds each directory that is created for an application's sockets,
	// by a file system of its own: a size such as "1Mi"; "" leaves them plain directories.
	DirectorySize string
	// SELinuxLabel is the label that sockets get where SELinux is on; "" leaves
	// theirs.
	SELinuxLabel string
}

// UserIDs are the numbers in User; false without one. A GID that is left out is the
// UID.
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

// Multus names what Multus leaves on the node.
type Multus struct {
	CacheDir string
}

// Kubelet names the kubelet's interfaces.
type Kubelet struct {
	// PodResourcesSocket is the socket of the Pod Resources API.
	PodResourcesSocket string
	// Required lets nothing but the kubelet say whose a device is: without its
	// socket no container gets one.
	Required bool
}

// Runtime names the container runtime's interfaces.
type Runtime struct {
	// Socket is the runtime's CRI socket; "" stands for the default of the runtime that
	// the NRI plugin is registered with.
	Socket string
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

// What becomes of an edit that comes too late: the container fails, or goes
// without it.
const (
	UndeliverableError Undeliverable = "error"
	UndeliverableWarn  Undeliverable = "warn"
)

// Hook is for the OCI hook.
type Hook struct {
	Undeliverable Undeliverable
	// AskedBy is an annotation, KEY=VALUE, without which a container of no pod may ask
	// for nothing; "" for none. An image's manifest may ask as its user does, and does
	// not know the value.
	AskedBy string
}

// Hooks says where hooks.d directories are, oci-hooks(5), for the NRI plugin to
// read.
type Hooks struct {
	// Dirs in ascending preference; nil for none.
	Dirs []string
}

// Mode is the policy's mode.
type Mode string

// The policy's modes.
const (
	Enforce Mode = "enforce"
	Audit   Mode = "audit"
)

// Policy is the node's policy, as written.
type Policy struct {
	Mode  Mode
	Rules []Rule
}

// Rule is one policy rule, as written. See pkg/policy for what it means.
type Rule struct {
	Name   string
	For    Subjects
	Mode   Mode // "" where the file does not say
	Allow  Allow
	Deny   Allow
	Limits Limits
}

// Subjects says whom a rule is for. A list that is not in the file is nil.
type Subjects struct {
	Namespaces     []string
	PodLabels      map[string]string
	RuntimeClasses []string
	Images         []string
}

// Allow says what a rule grants, or denies. A list that is not in the file is
// nil.
type Allow struct {
	CDI, Sockets, Devices []string
	Mounts                []MountRule
	Hooks, Networks       []string
}

// MountRule is a pattern of mounts: their source, their destination ("" for
// any), and whether they must be read-only.
type MountRule struct {
	Source, Destination string
	ReadOnly            bool
}

// Limits say how much a rule's containers, and their pods, may have.
type Limits struct{ Container, Pod Limit }

// Limit is how many of each kind; 0 where the file does not say.
type Limit struct{ CDI, Devices, Sockets, Mounts, Hooks int }

// Validate says what of other NRI plugins' injections is held against the policy.
type Validate struct {
	Devices, Mounts bool
	// Except are plugins whose injections are not looked at, as NN-name.
	Except []string
}

// Compat is what is taken of other projects' own forms.
type Compat struct {
	// DeviceInjector takes the annotations of NRI's sample plugin device-injector.
	DeviceInjector bool
}

// Default returns the configuration that holds without a file: nothing is
// allowed to anybody.
func Default() *Config {
	return &Config{
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
			Access: AccessACL, Staging: StagingAuto,
		},
		DeviceInfo: DeviceInfo{
			CNIDir: "/var/run/k8s.cni.cncf.io/devinfo/cni",
			DPDir:  "/var/run/k8s.cni.cncf.io/devinfo/dp",
		},
		Multus:   Multus{CacheDir: "/var/lib/cni/multus"},
		Kubelet:  Kubelet{PodResourcesSocket: "/var/lib/kubelet/pod-resources/kubelet.sock"},
		Hook:     Hook{Undeliverable: UndeliverableError},
		Missed:   MissedReport,
		StateDir: "/run/jackfield",
		Policy:   Policy{Mode: Enforce},
	}
}

// File returns the path of the file that c was read from, empty for Default.
func (c *Config) File() string { return c.file }

// Text is the content that was parsed, "" for [Default].
func (c *Config) Text() string { return c.text }

type position struct{ line, column int }

// Position returns where in the file a field stands, as file:line:column, for
// a dotted field such as policy.rules[0].allow.sockets[1]. For a field that is
// not in the file it is the place of the nearest field around it, and for
// Default it is empty.
func (c *Config) Position(field string) string {
	if line, column := c.LineColumn(field); line > 0 {
		return place(c.file, position{line, column})
	}
	return c.file
}

// LineColumn is [Config.Position] in numbers that count from 1; 0 for no place in
// the file.
func (c *Config) LineColumn(field string) (line, column int) {
	for ; field != ""; field = parent(field) {
		if p, ok := c.positions[field]; ok {
			return p.line, p.column
		}
	}
	return 0, 0
}

func place(file string, p position) string {
	return file + ":" + strconv.Itoa(p.line) + ":" + strconv.Itoa(p.column)
}

// parent returns the field around a field.
func parent(field string) string {
	for i := len(field) - 1; i >= 0; i-- {
		if field[i] == '.' || field[i] == '[' {
			return field[:i]
		}
	}
	return ""
}
