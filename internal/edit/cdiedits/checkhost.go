// SPDX-License-Identifier: Apache-2.0

package cdiedits

import (
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/cdiregistry"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// CheckHost checks edits of files against the host, as `jackfield validate` checks the files: a mount source or a hook's
// program that is missing, and a device node that is missing or contradicts its file. Each finding names file and field.
// An error means that the OCI runtime would not start the container.
//
// It skips mounts of networks and of Jackfield itself, whose sources are created with the container. Sources must be host
// paths, without the directory of the root.
func CheckHost(host hostfs.Root, set *edit.Set) diag.List {
	var found diag.List
	add := func(fault *diag.Diagnostic, hostPath string, origin edit.Origin) {
		if fault != nil {
			found = append(found, inHostPath(fault, hostPath, origin))
		}
	}
	for i := range set.Devices {
		if d := &set.Devices[i]; d.Origin.Source == edit.CDI {
			n := specs.DeviceNode{Path: d.Path, HostPath: d.HostPath, Type: d.Type, Major: d.Major, Minor: d.Minor}
			add(cdiregistry.CheckNode(host, &n), d.HostPath, d.Origin)
		}
	}
	for _, m := range set.Mounts {
		if (m.Origin.Source == edit.CDI || m.Origin.Source == edit.Injector) && isBind(&m) {
			add(cdiregistry.CheckMountSource(host, m.Source), m.Source, m.Origin)
		}
	}
	for _, h := range set.Hooks {
		add(cdiregistry.CheckHook(host, h.Path), h.Path, h.Origin)
	}
	return found
}

// isBind reports whether the source of a mount is a path on the host.
func isBind(m *edit.Mount) bool {
	return m.Type == "" || m.Type == "bind" || m.Type == "none" || m.Type == "rbind" || mountopt.Parse(m.Options).Bind
}
