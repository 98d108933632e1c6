// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"path"
	"strings"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Roles of a device-info file.
const (
	roleDP  = "dp"  // written by a device plugin (Device Information Specification, §4.1)
	roleCNI = "cni" // exchanged with CNI plugins (§4.2)
)

// infoFile is a device-info file, and whose it is as far as its name tells.
type infoFile struct {
	Role      string           `json:"role"`
	File      string           `json:"file"`
	Resource  string           `json:"resource,omitempty"`
	DeviceID  string           `json:"deviceID,omitempty"`
	Network   string           `json:"network,omitempty"`
	Interface string           `json:"interface,omitempty"`
	SandboxID string           `json:"sandboxID,omitempty"`
	Type      string           `json:"type,omitempty"`
	Valid     bool             `json:"valid"`
	Findings  []finding        `json:"findings,omitempty"`
	Info      *deviceinfo.Info `json:"deviceInfo,omitempty"`
}

func newInfoFile(role string, e deviceinfo.Entry) infoFile {
	f := infoFile{Role: role, File: e.File, Info: e.Info, Valid: e.Err == nil}
	if e.Err != nil {
		f.Findings = fromDeviceInfoError(e.File, e.Err)
	} else {
		f.Type = string(e.Info.Type)
		f.Findings = fromDeviceInfo(e.File, severityWarning, e.Info.Warnings)
	}
	if role == roleDP {
		f.Resource, f.DeviceID = splitDPName(path.Base(e.File), e.Info)
		return f
	}
	if e.IfName != "" {
		f.Network, f.Interface = e.Network, e.IfName
		f.SandboxID = sandboxOf(path.Base(e.File), e.Network, e.IfName)
	} else {
		f.Network, f.SandboxID, f.Interface = splitCNIName(path.Base(e.File))
	}
	f.Network = namespaced(f.Network)
	return f
}

// what is whose file it is, in a few words.
func (f *infoFile) what() string {
	switch {
	case f.Role == roleDP && f.DeviceID != "":
		return f.Resource + " " + f.DeviceID
	case f.Role == roleCNI && f.Interface != "":
		s := f.Network + " " + f.Interface
		if f.SandboxID != "" {
			s += " in " + shortID(f.SandboxID)
		}
		return s
	}
	return ""
}

// state is valid, warning or invalid.
func (f *infoFile) state() string {
	switch {
	case !f.Valid:
		return "invalid"
	case len(f.Findings) > 0:
		return severityWarning
	}
	return "valid"
}

// detail is the file, or the first thing to say of it, which begins with it.
func (f *infoFile) detail() string {
	if len(f.Findings) == 0 {
		return f.File
	}
	s := f.Findings[0].String()
	if n := len(f.Findings) - 1; n > 0 {
		s += fmt.Sprintf(" (and %d more)", n)
	}
	return s
}

func (f *infoFile) row(t *table) { t.add(f.Role, f.Type, f.what(), f.state(), f.detail()) }

// shortID is how crictl shows an ID.
func shortID(id string) string { return id[:min(len(id), 13)] }

const dpSuffix = "-device.json"

var pciAtEnd = lazy(`-([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])$`)

// splitDPName parts the name of a device plugin's file, RESOURCE-ID-device.json
// (§4.1), where the ID can be told: it is an address that the content names, or
// looks like one.
func splitDPName(name string, info *deviceinfo.Info) (resource, id string) {
	name = strings.TrimSuffix(name, dpSuffix)
	for _, c := range deviceIDs(info) {
		if r, ok := strings.CutSuffix(name, "-"+strings.ReplaceAll(c, "/", "-")); ok && c != "" && r != "" {
			return namespaced(r), c
		}
	}
	if m := pciAtEnd().FindStringSubmatchIndex(name); m != nil && m[0] > 0 {
		return namespaced(name[:m[0]]), name[m[2]:m[3]]
	}
	return "", ""
}

// deviceIDs are what device plugins take for the ID of a device.
func deviceIDs(info *deviceinfo.Info) []string {
	switch {
	case info == nil:
		return nil
	case info.Type == deviceinfo.TypePCI:
		return []string{info.PCI.PCIAddress}
	case info.Type == deviceinfo.TypeVDPA:
		return []string{info.VDPA.PCIAddress, info.VDPA.ParentDevice}
	}
	return nil
}

// namespaced puts back the "/" that a file name cannot hold, where there is one
// place only where it can have been.
func namespaced(s string) string {
	if strings.Count(s, "-") == 1 {
		return strings.Replace(s, "-", "/", 1)
	}
	return s
}

// A sandbox ID of containerd and CRI-O. Others cannot be told from the name of a
// network before them.
var cniName = lazy(`^(.+)-([0-9a-f]{64})_([^/]{1,15})$`)

// splitCNIName parts a name of the form that Multus gives, NETWORK-SANDBOX_IFNAME.
func splitCNIName(name string) (network, sandboxID, ifName string) {
	if m := cniName().FindStringSubmatch(name); m != nil {
		if n, i, ok := deviceinfo.MatchCNIFileName(name, m[2]); ok {
			return n, m[2], i
		}
	}
	return "", "", ""
}

// sandboxOf is what a name holds between network and interface.
func sandboxOf(name, network, ifName string) string {
	return strings.TrimSuffix(strings.TrimPrefix(name, network+"-"), "_"+ifName)
}
