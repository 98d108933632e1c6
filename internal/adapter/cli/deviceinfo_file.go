// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/source/devicemetadata"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Roles of a device-info file.
const (
	roleDP  = "dp"  // written by a device plugin (Device Information Specification, §4.1)
	roleCNI = "cni" // exchanged with CNI plugins (§4.2)

	roleClaim = "claim" // device metadata, written by a driver of dynamic resource allocation
)

// infoFile is a device-info file, and its owner as far as the file's name shows it, or one device in
// a file of device metadata.
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
	Findings  diag.List        `json:"findings,omitempty"`
	Info      *deviceinfo.Info `json:"deviceInfo,omitempty"`
	Claim     *claimDevice     `json:"claim,omitempty"`
}

// claimDevice is a device of a resource claim. Of a file with faults only its place is known.
type claimDevice struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitempty"`
	PodClaim  string `json:"podClaim,omitempty"`
	Request   string `json:"request"`
	devicemetadata.Device
	Version string `json:"version,omitempty"` // that counts
}

// newClaimFiles returns the devices in a file of device metadata. A file without a device is one
// element, too.
func newClaimFiles(f *devicemetadata.File) (out []infoFile) {
	place := claimDevice{Namespace: f.Namespace, Name: f.Claim, Request: f.Request,
		Device: devicemetadata.Device{Driver: f.Driver}}
	if f.Err != nil {
		return []infoFile{{Role: roleClaim, File: f.Path, Claim: &place, Findings: diag.InFile(f.Path, f.Err)}}
	}
	place.UID, place.PodClaim, place.Version = f.Metadata.UID, f.Metadata.PodClaim, f.Metadata.Version
	for _, r := range f.Metadata.Requests {
		for _, d := range r.Devices {
			c := place
			c.Request, c.Device = r.Name, d
			file := infoFile{Role: roleClaim, File: f.Path, Interface: d.IfName, Valid: true, Claim: &c}
			switch {
			case d.VhostUserPath != "":
				file.Type = string(deviceinfo.TypeVhostUser)
			case d.PCIAddress != "":
				file.Type = string(deviceinfo.TypePCI)
			}
			out = append(out, file)
		}
	}
	if len(out) == 0 {
		out = []infoFile{{Role: roleClaim, File: f.Path, Claim: &place, Valid: true}}
	}
	return out
}

func newInfoFile(role string, e deviceinfo.Entry) infoFile {
	f := infoFile{Role: role, File: e.File, Info: e.Info, Valid: e.Err == nil}
	if e.Err != nil {
		f.Findings = diag.InFile(e.File, e.Err)
	} else {
		f.Type = string(e.Info.Type)
		f.Findings = diag.All("", e.Info.Warnings).WithFile(e.File)
	}
	if role == roleDP {
		f.Resource, f.DeviceID = splitDPName(path.Base(e.File), e.Info)
		return f
	}
	if e.IfName != "" {
		f.Network, f.Interface = e.Network, e.IfName
		f.SandboxID = strings.TrimSuffix(strings.TrimPrefix(path.Base(e.File), e.Network+"-"), "_"+e.IfName)
	} else {
		f.Network, f.SandboxID, f.Interface = name.SplitInfoFile(path.Base(e.File))
	}
	f.Network = namespaced(f.Network)
	return f
}

// ownerText names the owner of the file, "" where the name does not show it.
func (f *infoFile) ownerText() string {
	switch {
	case f.Claim != nil:
		return f.Claim.Describe(f.Claim.Namespace+"/"+f.Claim.Name, f.Claim.Request)
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

// stateText is valid, warning or invalid.
func (f *infoFile) stateText() string {
	switch {
	case !f.Valid:
		return "invalid"
	case len(f.Findings) > 0:
		return string(diag.SeverityWarning)
	}
	return "valid"
}

// detailText is the file, or its first diagnostic, which begins with the file.
func (f *infoFile) detailText() string {
	if len(f.Findings) == 0 {
		return f.File
	}
	return f.Findings.Summary()
}

// shortID shortens an ID as crictl does.
func shortID(id string) string { return id[:min(len(id), 13)] }

const dpSuffix = "-device.json"

// splitDPName splits the name of a device plugin's file, RESOURCE-ID-device.json (§4.1), where the
// ID is an address that the content names, or looks like a PCI address.
func splitDPName(name string, info *deviceinfo.Info) (resource, id string) {
	name = strings.TrimSuffix(name, dpSuffix)
	for _, c := range deviceIDs(info) {
		if r, ok := strings.CutSuffix(name, "-"+strings.ReplaceAll(c, "/", "-")); ok && c != "" && r != "" {
			return namespaced(r), c
		}
	}
	i := strings.LastIndexByte(name, '-')
	if _, wellFormed := diag.PCIAddress(name[i+1:]); wellFormed && i > 0 {
		return namespaced(name[:i]), name[i+1:]
	}
	return "", ""
}

// deviceIDs returns the values that device plugins use as the ID of a device.
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

// namespaced restores the "/" that a file name cannot hold, where only one "-" can stand for it.
func namespaced(s string) string {
	if strings.Count(s, "-") == 1 {
		return strings.Replace(s, "-", "/", 1)
	}
	return s
}
