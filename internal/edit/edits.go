// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"os"
	"slices"

	"github.com/jackfield/jackfield/internal/base/quantity"
	"golang.org/x/sys/unix"
)

// Source is the kind of request that an edit comes from. CDI edits override each other as CDI
// prescribes. Differing edits of two sources are a conflict.
type Source uint8

const (
	// CDI marks edits of a Container Device Interface specification file.
	CDI Source = iota
	// Attachment marks edits from the device-info of a network attachment.
	Attachment
	// SourceJackfield marks Jackfield's own edits: devices.json and its variables.
	SourceJackfield
	// HooksDir marks hooks from a hooks.d directory.
	HooksDir
	// Injector marks edits that annotations of NRI's device-injector request.
	Injector
)

// Origin is where an edit comes from: request, file and field, policy rule.
type Origin struct {
	Source  Source `json:"-"`
	Request string `json:"request"`         // as a person would name it: `CDI device "vendor.com/net=a"`
	File    string `json:"file,omitempty"`  // the file that describes the edit
	Field   string `json:"field,omitempty"` // dotted path in that file, "devices[2].containerEdits.mounts[0]"
	Rule    string `json:"rule,omitempty"`  // the policy rule that granted the request
}

// String returns the origin in one line, for messages.
func (o Origin) String() string {
	switch {
	case o.File == "":
		return o.Request
	case o.Field == "":
		return o.Request + " (" + o.File + ")"
	}
	return o.Request + " (" + o.File + ": " + o.Field + ")"
}

// NoAccess is the Access of a node that the container must not use.
const NoAccess = "none"

// Device is one device node. Its numbers are the host's, from the node itself or from an
// administrator's CDI file.
type Device struct {
	Path     string       `json:"path"`               // in the container
	HostPath string       `json:"hostPath,omitempty"` // on the host
	Type     string       `json:"type"`               // b, c, u or p
	Major    int64        `json:"major"`
	Minor    int64        `json:"minor"`
	FileMode *os.FileMode `json:"fileMode,omitempty"` // permission bits
	UID      *uint32      `json:"uid,omitempty"`
	GID      *uint32      `json:"gid,omitempty"`
	// Access is for the device cgroup: some of r, w and m, or NoAccess; "" is the runtime's default.
	Access string `json:"access,omitempty"`
	// Bind delivers the node by a bind mount of HostPath, because a user namespace does not
	// permit mknod.
	Bind   bool   `json:"bind,omitempty"`
	Origin Origin `json:"origin"`
}

// Mount is one mount, in the terms of the OCI runtime specification.
type Mount struct {
	Destination string   `json:"destination"`
	Source      string   `json:"source"`
	Type        string   `json:"type,omitempty"`
	Options     []string `json:"options,omitempty"`
	// Replaces is the destination of the container's own mount that must be removed; "" for none.
	Replaces string `json:"replaces,omitempty"`
	Origin   Origin `json:"origin"`
}

// Stage is one of the OCI hook stages.
type Stage string

// The stages of the OCI runtime specification.
const (
	Prestart        Stage = "prestart"
	CreateRuntime   Stage = "createRuntime"
	CreateContainer Stage = "createContainer"
	StartContainer  Stage = "startContainer"
	Poststart       Stage = "poststart"
	Poststop        Stage = "poststop"
)

// Stages lists every stage in the order in which a runtime reaches them.
func Stages() []Stage {
	return []Stage{Prestart, CreateRuntime, CreateContainer, StartContainer, Poststart, Poststop}
}

// Hook is one OCI hook.
type Hook struct {
	Stage   Stage    `json:"stage"`
	Path    string   `json:"path"`
	Args    []string `json:"args,omitempty"`
	Env     []string `json:"env,omitempty"`
	Timeout *int     `json:"timeout,omitempty"` // seconds
	Origin  Origin   `json:"origin"`
}

// NetDevice moves a host network device into the container (CDI 1.1.0).
type NetDevice struct {
	HostName string `json:"hostName"`
	Name     string `json:"name"`
	Origin   Origin `json:"origin"`
}

// RDT is the container's Intel Resource Director Technology configuration.
type RDT struct {
	ClosID           string   `json:"closID,omitempty"`
	L3CacheSchema    string   `json:"l3CacheSchema,omitempty"`
	MemBwSchema      string   `json:"memBwSchema,omitempty"`
	Schemata         []string `json:"schemata,omitempty"`
	EnableMonitoring bool     `json:"enableMonitoring,omitempty"`
	Origin           Origin   `json:"origin"`
}

// Rlimit is a resource limit of a process, setrlimit(2). RLIM_INFINITY is quantity.Unlimited.
type Rlimit struct {
	Soft quantity.Memory `json:"soft"`
	Hard quantity.Memory `json:"hard"`
}

// Memlock sets the container's RLIMIT_MEMLOCK, the memory that each of its processes can lock.
type Memlock struct {
	Rlimit
	Origin Origin `json:"origin"`
}

// RlimitMemlock is the type of [Memlock] in an OCI configuration.
const RlimitMemlock = "RLIMIT_MEMLOCK"

// GID is one additional group of the container's process.
type GID struct {
	ID     uint32 `json:"id"`
	Origin Origin `json:"origin"`
}

// Set is an ordered set of edits. A mount below another comes after it. The other lists keep the
// order of the requests.
type Set struct {
	Env        []Env       `json:"env,omitempty"`
	Devices    []Device    `json:"devices,omitempty"`
	Mounts     []Mount     `json:"mounts,omitempty"`
	Hooks      []Hook      `json:"hooks,omitempty"`
	NetDevices []NetDevice `json:"netDevices,omitempty"`
	GIDs       []GID       `json:"additionalGids,omitempty"`
	RDT        *RDT        `json:"intelRdt,omitempty"`
	Memlock    *Memlock    `json:"memlock,omitempty"`
}

// Empty reports whether the set changes nothing.
func (s *Set) Empty() bool {
	return len(s.Env) == 0 && len(s.Devices) == 0 && len(s.Mounts) == 0 && len(s.Hooks) == 0 &&
		len(s.NetDevices) == 0 && len(s.GIDs) == 0 && s.RDT == nil && s.Memlock == nil
}

// FileType returns the type bits of the node's mode, 0 for an unknown type.
func (d *Device) FileType() uint32 {
	return map[string]uint32{"c": unix.S_IFCHR, "u": unix.S_IFCHR, "b": unix.S_IFBLK, "p": unix.S_IFIFO}[d.Type]
}

// key identifies the device in a set.
func (d *Device) key() string { return Clean(d.Path) }

// sameNode reports whether two devices have the same type and numbers.
func (d *Device) sameNode(o *Device) bool {
	return d.Type == o.Type && d.Major == o.Major && d.Minor == o.Minor
}

// key identifies the mount in a set. The mounts below /run and /var/run that name the same directory differ.
func (m *Mount) key() string { return absolute(m.Destination) }

// isBind reports whether the mount shows a file or directory of the host.
func (m *Mount) isBind() bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

func (m *Mount) sameMount(o *Mount) bool {
	return m.Source == o.Source && m.Type == o.Type && slices.Equal(m.Options, o.Options)
}

func (h *Hook) sameHook(o *Hook) bool {
	return h.Stage == o.Stage && h.Path == o.Path && slices.Equal(h.Args, o.Args) && slices.Equal(h.Env, o.Env)
}
