// SPDX-License-Identifier: Apache-2.0

package cdiedits

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// completeNode fills in type, numbers and mode of a device node from the node on the host if the spec omits them (CDI,
// "deviceNodes"). Validation and injection both call it, so that they agree. It returns nil, a warning, or why a
// container cannot get the node; the Rule follows the name of the host path.
//
// A spec that sets type and major describes its node in full: the host need not have the node yet. A node that the host
// has must agree with the spec, because the runtime would create another device under the name.
func completeNode(host hostfs.Root, n *specs.DeviceNode) *diag.Diagnostic {
	n.HostPath = cmp.Or(n.HostPath, n.Path)
	st, err := host.Stat(n.HostPath)
	if err != nil {
		st.Mode = 0
	}
	hostType := hostfs.DeviceType(st.Mode)
	isComplete := n.Type != "" && (n.Major != 0 || n.Type == "p")
	switch {
	case hostType == "" && isComplete:
		n.FileMode = permissionBits(n.FileMode)
		return missingNode(n, st.Mode, err, diag.SeverityWarning)
	case hostType == "":
		return missingNode(n, st.Mode, err, diag.SeverityError)
	}
	onHost := specs.DeviceNode{Type: hostType}
	if hostType != "p" {
		onHost.Major, onHost.Minor = int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev))
	}
	if d := compareNodes(n, &onHost); d != nil {
		return d
	}
	n.Type = cmp.Or(n.Type, hostType)
	if n.Type != "p" {
		n.Major, n.Minor = onHost.Major, onHost.Minor
	}
	if n.FileMode == nil {
		n.FileMode = new(os.FileMode(st.Mode))
	}
	n.FileMode = permissionBits(n.FileMode)
	return nil
}

// compareNodes returns how the node of a spec contradicts the host's node.
func compareNodes(n, onHost *specs.DeviceNode) *diag.Diagnostic {
	if t := ModeType(n.FileMode); t != "" && t != onHost.Type {
		rule := fmt.Sprintf("is a node of type %s on the host, but the file's fileMode has the type bits of %s", onHost.Type,
			t)
		return nodeFault(rule, "set fileMode to its permission bits")
	}
	sameType := n.Type == "" || n.Type == onHost.Type || n.Type == "u" && onHost.Type == "c"
	sameNumbers := onHost.Type == "p" || n.Major == 0 || n.Major == onHost.Major && n.Minor == onHost.Minor
	if sameType && sameNumbers {
		return nil
	}
	return nodeFault(fmt.Sprintf("is %s on the host, but the file says %s", nodeText(onHost), nodeText(n)),
		"generate the file again, or set hostPath to the host's node")
}

// missingNode is about a node that the host does not have. A warning means that the spec describes the node in full.
func missingNode(n *specs.DeviceNode, mode uint32, err error, severity diag.Severity) *diag.Diagnostic {
	if err == nil {
		d := nodeFault("is a "+hostfs.TypeName(mode)+" on the host; a device node must be a device or a FIFO", "")
		d.Severity = severity
		return d
	}
	verb, missing := "read", ""
	if errors.Is(err, errdefs.ErrNotFound) {
		verb = "found"
	}
	switch {
	case severity == diag.SeverityWarning:
	case n.Type == "" && n.Major == 0:
		missing = ", and the file sets neither type nor major"
	case n.Type == "":
		missing = ", and the file sets no type"
	default:
		missing = ", and the file sets no major"
	}
	return &diag.Diagnostic{Rule: "cannot be " + verb + " on the host: " + hostfs.Errno(err).Error() + missing,
		Hint: "load the driver, or generate the file again if it is out of date", Severity: severity, Kind: err}
}

func nodeFault(rule, hint string) *diag.Diagnostic {
	return &diag.Diagnostic{Rule: rule, Hint: hint, Severity: diag.SeverityError, Kind: errdefs.ErrInvalidArgument}
}

// nodeText returns type and numbers as far as they are set, such as "c 195:3".
func nodeText(n *specs.DeviceNode) string {
	if n.Type == "p" || n.Major == 0 {
		return "type " + n.Type
	}
	return strings.TrimSpace(fmt.Sprintf("%s %d:%d", n.Type, n.Major, n.Minor))
}

// Vendors fill fileMode from stat(2), or from Go's os.FileInfo, with the bits of the file type. The OCI runtimes drop
// these bits.
const goTypeBits = os.ModeType | os.ModeSetuid | os.ModeSetgid | os.ModeSticky

// PermissionMask has the bits of a mode that are no type bits.
const PermissionMask = 0o7777

// permissionBits returns a copy of a mode without other bits.
func permissionBits(mode *os.FileMode) *os.FileMode {
	if mode == nil {
		return nil
	}
	return new(*mode & PermissionMask)
}

// ModeType returns the type of device node that the bits of a mode stand for: "" without type bits, and "?" for the
// type bits of another file.
func ModeType(mode *os.FileMode) string {
	if mode == nil {
		return ""
	}
	bits := *mode &^ PermissionMask
	switch bits &^ (goTypeBits &^ os.ModeType) {
	case 0:
		return ""
	case unix.S_IFCHR, os.ModeDevice | os.ModeCharDevice:
		return "c"
	case unix.S_IFBLK, os.ModeDevice:
		return "b"
	case unix.S_IFIFO, os.ModeNamedPipe:
		return "p"
	}
	return "?"
}
