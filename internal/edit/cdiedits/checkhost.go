// SPDX-License-Identifier: Apache-2.0

package cdiedits

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfs"
)

// CheckHost checks edits of files against the host, as `jackfield validate` checks the files: a mount source or a
// hook's program that is missing, and a device node that is missing or contradicts its file. Each finding names file
// and field. An error means that the OCI runtime would not start the container.
//
// It skips mounts of networks and of Jackfield itself, whose sources are created with the container. Sources must be
// host paths, without the directory of the root.
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
			add(CheckNode(host, &n), d.HostPath, d.Origin)
		}
	}
	for _, m := range set.Mounts {
		if (m.Origin.Source == edit.CDI || m.Origin.Source == edit.Injector) && isBind(&m) {
			add(CheckMountSource(host, m.Source), m.Source, m.Origin)
		}
	}
	for _, h := range set.Hooks {
		add(CheckHook(host, h.Path), h.Path, h.Origin)
	}
	return found
}

// isBind reports whether the source of a mount is a path on the host.
func isBind(m *edit.Mount) bool {
	return m.Type == "" || m.Type == "bind" || m.Type == "none" || m.Type == "rbind" || mountopt.Parse(m.Options).Bind
}

// CheckNode returns the error of completeNode and does not change the node.
func CheckNode(host hostfs.Root, n *specs.DeviceNode) *diag.Diagnostic {
	completed := *n
	return completeNode(host, &completed)
}

// CheckMountSource returns why the host path of a bind mount cannot be mounted, or nil. The Rule follows the path.
func CheckMountSource(host hostfs.Root, hostPath string) *diag.Diagnostic {
	if _, err := host.Stat(hostPath); err != nil {
		return missingFile(err)
	}
	return nil
}

// CheckHook returns why the host cannot run the program of a hook, or nil. The Rule follows the path.
func CheckHook(host hostfs.Root, program string) *diag.Diagnostic {
	st, err := host.Stat(program)
	switch {
	case err != nil:
		return missingFile(err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		rule := fmt.Sprintf("is a %s of mode %04o on the host; a hook must be an executable file",
			hostfs.TypeName(st.Mode), st.Mode&0o7777)
		return &diag.Diagnostic{Rule: rule, Severity: diag.SeverityError, Kind: errdefs.ErrInvalidArgument}
	}
	return nil
}

func missingFile(err error) *diag.Diagnostic {
	verb := "read"
	if errors.Is(err, errdefs.ErrNotFound) {
		verb = "found"
	}
	return &diag.Diagnostic{Rule: "cannot be " + verb + " on the host: " + hostfs.Errno(err).Error(),
		Hint: "generate the file again if it is out of date", Severity: diag.SeverityError, Kind: err}
}

// CheckInterface warns about a network interface that is missing on the host. An interface that was moved into a
// container is also missing. The Rule follows the name.
func CheckInterface(host hostfs.Root, ifName string) *diag.Diagnostic {
	if d := CheckInterfaceName(ifName); d != nil {
		return d
	}
	if has, _ := sysfs.HasInterface(host, ifName); !has {
		return &diag.Diagnostic{Rule: "cannot be found among the host's network interfaces: " + unix.ENOENT.Error(),
			Severity: diag.SeverityWarning, Kind: errdefs.ErrNotFound}
	}
	return nil
}

// CheckInterfaceName returns why no network interface can have a name, or nil.
func CheckInterfaceName(ifName string) *diag.Diagnostic {
	if !name.IsInterface(ifName) {
		return &diag.Diagnostic{Rule: `no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
			Severity: diag.SeverityError, Kind: errdefs.ErrInvalidArgument}
	}
	return nil
}
