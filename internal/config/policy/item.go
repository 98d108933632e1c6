// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
)

// An item is the object of a decision. Each kind of item has a list in a rule's allow and deny;
// adding a kind means adding it to every table here.
//
// kind is a kind of item that rules allow or deny.
type kind uint8

const (
	kindCDI kind = iota
	kindSocket
	kindDevice
	kindMount
	kindHook
	kindNetwork // in a rule's allow, networks narrow sockets and devices
	kindPort
	kindNamedSocket
	kinds
)

// String returns the kind's name in messages.
func (k kind) String() string {
	return [kinds]string{"CDI device", "socket", "device node", "mount", "hook", "network", "port", "named socket"}[k]
}

// listName returns the kind's list in a rule's allow or deny.
func (k kind) listName() string {
	return [kinds]string{"cdi", "sockets", "devices", "mounts", "hooks", "networks", "ports", "namedSockets"}[k]
}

// compile compiles a pattern for names of the kind.
func (k kind) compile(pattern string) (glob.Glob, error) {
	switch k {
	case kindCDI:
		return compileCDI(pattern)
	case kindNetwork, kindNamedSocket:
		return glob.CompileName(pattern)
	case kindPort:
		return compilePort(pattern)
	}
	return glob.CompilePath(pattern)
}

// list returns the patterns of a kind that consist of names; nil for mounts and ports.
func (a *Allow) list(k kind) *[]string {
	return [kinds]*[]string{kindCDI: &a.CDI, kindSocket: &a.Sockets, kindDevice: &a.Devices, kindHook: &a.Hooks,
		kindNetwork: &a.Networks, kindNamedSocket: &a.NamedSockets}[k]
}

// isHostPath reports whether the kind's items are identified by a host path.
func (k kind) isHostPath() bool {
	return k != kindCDI && k != kindNetwork && k != kindPort && k != kindNamedSocket
}

// item is the object of a decision.
type item struct {
	kind        kind
	name        string   // the source of a mount
	more        []string // device nodes that the remedy of a refusal also grants
	destination string   // mounts: the path in the container
	fsType      string   // mounts that are not bind mounts; they have no name
	writable    bool     // mounts
	whole       bool     // sockets: a directory with everything below it
	vlan        int      // ports; 0 for untagged
}

// vfioDevices is the directory of the nodes of VFIO devices.
const vfioDevices = "/dev/vfio/devices"

// noIOMMU begins the path of the node of a VFIO group without an IOMMU.
const noIOMMU = "/dev/vfio/noiommu-"

// isNoIOMMU reports whether the item is a device that can access all memory of the host.
func (it *item) isNoIOMMU() bool {
	return it.kind == kindDevice && strings.HasPrefix(it.name, noIOMMU)
}

// describe returns the item for a message, such as `mount "/srv/a" at "/data"`.
func (it *item) describe() string {
	text := it.kind.String() + " " + diag.Quote(it.name)
	// The special forms of a kind come before the kind itself.
	switch {
	case it.whole:
		return "socket directory " + diag.Quote(it.name)
	case it.fsType != "":
		return "mount of type " + diag.Quote(it.fsType) + " at " + diag.Quote(it.destination)
	case it.kind == kindMount:
		return text + " at " + diag.Quote(it.destination)
	case it.kind == kindPort && it.vlan != 0:
		return text + fmt.Sprintf(" with VLAN %d", it.vlan)
	case it.kind == kindPort:
		return text + " without a VLAN"
	}
	return text
}

// isWellFormed reports whether a rule could allow the item at all.
func (it *item) isWellFormed() bool {
	switch {
	case it.kind == kindPort:
		return isValidPort(it.name, it.vlan)
	case it.kind == kindMount && !glob.CleanPath(it.destination):
		return false
	case it.fsType != "":
		return isFileSystemType(it.fsType)
	}
	return !it.kind.isHostPath() || glob.CleanPath(it.name)
}

// within describes the parts of the item that a denial can match.
func (it *item) within() string {
	switch it.kind {
	case kindMount:
		return "paths within the mount"
	case kindPort:
		return "VLANs that an untagged port can carry"
	}
	return "paths within the directory"
}

// entries returns the item as entries of a rule's list.
func (it *item) entries() []string {
	list := []string{it.formatYAML()}
	for _, name := range it.more {
		list = append(list, (&item{kind: it.kind, name: name}).formatYAML())
	}
	return list
}

// formatYAML returns the list entry that matches only this item, for a rule.
// The kernel numbers the devices of VFIO as it finds them, so a pattern for all of them is proposed.
func (it *item) formatYAML() string {
	switch {
	case it.kind == kindDevice && strings.HasPrefix(it.name, vfioDevices+"/"):
		return strconv.Quote(vfioDevices + "/*")
	case it.kind == kindMount:
		return Mount{Type: it.fsType, Source: it.name, Destination: it.destination, ReadOnly: !it.writable}.FormatYAML()
	case it.kind == kindPort && it.vlan > 0:
		return PortPattern{Port: it.name, VLANs: []string{strconv.Itoa(it.vlan)}}.formatYAML()
	case it.whole:
		return strconv.Quote(it.name + "/**")
	}
	return strconv.Quote(it.name)
}
