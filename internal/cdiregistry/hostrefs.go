// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// hostRef is a path, or a network interface, that must exist on the host when a container is created.
type hostRef struct {
	place Diagnostic
	check func(host hostfs.Root) *Diagnostic
}

// addRef keeps a reference at the value n where references were asked for.
func (c *checker) addRef(n *jsontree.Node, key string, check func(host hostfs.Root) *Diagnostic) {
	if !c.withRefs || n == nil || n.Text == "" {
		return
	}
	place := Diagnostic{Line: n.Line, Column: n.Column, Field: c.fieldPath(key), Found: fmt.Sprintf("%q", n.Text)}
	c.refs = append(c.refs, hostRef{place, check})
}

// checkHost returns why the reference does not lead to something of the right kind, or nil.
func (ref hostRef) checkHost(host hostfs.Root) *Diagnostic {
	fault := ref.check(host)
	if fault == nil {
		return nil
	}
	d := ref.place
	d.Rule, d.Hint, d.Severity, d.Kind = fault.Rule, fault.Hint, fault.Severity, errdefs.ErrFailedPrecondition
	return &d
}

// CheckNode is CompleteNode without a change of the node.
func CheckNode(host hostfs.Root, n *specs.DeviceNode) *Diagnostic {
	completed := *n
	return CompleteNode(host, &completed)
}

// CheckMountSource returns why the host path of a bind mount cannot be mounted, or nil. The Rule follows the path.
func CheckMountSource(host hostfs.Root, hostPath string) *Diagnostic {
	if _, err := host.Stat(hostPath); err != nil {
		return missingFile(err)
	}
	return nil
}

// CheckHook returns why the host cannot run the program of a hook, or nil. The Rule follows the path.
func CheckHook(host hostfs.Root, program string) *Diagnostic {
	st, err := host.Stat(program)
	switch {
	case err != nil:
		return missingFile(err)
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0:
		rule := fmt.Sprintf("is a %s of mode %04o on the host; a hook must be an executable file", hostfs.TypeName(st.Mode), st.Mode&0o7777)
		return &Diagnostic{Rule: rule, Severity: diag.SeverityError, Kind: errdefs.ErrInvalidArgument}
	}
	return nil
}

func missingFile(err error) *Diagnostic {
	verb := "read"
	if errors.Is(err, errdefs.ErrNotFound) {
		verb = "found"
	}
	return &Diagnostic{Rule: "cannot be " + verb + " on the host: " + hostfs.Errno(err).Error(),
		Hint: "generate the file again if it is out of date", Severity: diag.SeverityError, Kind: err}
}

// CheckInterface warns of a network interface that the host does not have: while a container has it, the host has not.
// The Rule follows the name.
func CheckInterface(host hostfs.Root, name string) *Diagnostic {
	if d := checkInterfaceName(name); d != nil {
		return d
	}
	if _, err := host.Stat("/sys/class/net/" + name); err != nil {
		return &Diagnostic{Rule: "cannot be found among the host's network interfaces: " + hostfs.Errno(err).Error(),
			Severity: diag.SeverityWarning, Kind: err}
	}
	return nil
}

// checkInterfaceName returns why no interface can have a name, or nil.
func checkInterfaceName(name string) *Diagnostic {
	if len(name) > maxInterface || name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r") {
		return &Diagnostic{Rule: `no interface has that name: 1 to 15 bytes without "/", ":" and white space`,
			Severity: diag.SeverityError, Kind: errdefs.ErrInvalidArgument}
	}
	return nil
}
