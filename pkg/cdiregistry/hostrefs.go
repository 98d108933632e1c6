// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// refKind is what a path of a spec refers to on the host.
type refKind int

const (
	refNode refKind = iota
	refMount
	refHook
	refInterface
	refInterfaceName // in the container, where only the name's form is checked
)

// hostRef is a path, or a network interface, that must exist on the host when a container is
// created.
type hostRef struct {
	what  refKind
	path  string
	node  *specs.DeviceNode // of refNode
	place Diagnostic
}

// addRef keeps a reference at the value n where references were asked for.
func (c *checker) addRef(ref hostRef, n *jsontree.Node, key string) {
	if !c.withRefs || ref.path == "" || n == nil {
		return
	}
	ref.place = Diagnostic{Line: n.Line, Column: n.Column, Field: c.fieldPath(key), Found: fmt.Sprintf("%q", ref.path)}
	c.refs = append(c.refs, ref)
}

// checkHost returns why the reference does not lead to something of the right kind, or nil.
func (ref hostRef) checkHost(host hostfs.Root) *Diagnostic {
	rule, severity := ref.findFault(host)
	if rule == "" {
		return nil
	}
	d := ref.place
	d.Rule, d.Severity, d.Kind = rule, severity, errdefs.ErrFailedPrecondition
	return &d
}

func (ref hostRef) findFault(host hostfs.Root) (rule string, severity diag.Severity) {
	if ref.what == refInterface || ref.what == refInterfaceName {
		return ref.checkInterface(host)
	}
	st, err := host.Stat(ref.path)
	switch {
	case err != nil:
		// A node that the spec describes in full is created without one on the host.
		if ref.what == refNode && ref.node.Type != "" && (ref.node.Major != 0 || ref.node.Type == "p") {
			severity = diag.SeverityWarning
		}
		what := "read"
		if errors.Is(err, errdefs.ErrNotFound) {
			what = "found"
		}
		return "cannot be " + what + " on the host: " + hostfs.Errno(err).Error(), severity
	case ref.what == refHook && (st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o111 == 0):
		return fmt.Sprintf("is a %s of mode %04o on the host; a hook must be an executable file", hostfs.TypeName(st.Mode), st.Mode&0o7777), ""
	case ref.what == refNode:
		return checkNode(ref.node, &st)
	}
	return "", ""
}

// checkInterface warns of a missing interface: while a container has it, the host has not.
func (ref hostRef) checkInterface(host hostfs.Root) (rule string, severity diag.Severity) {
	if len(ref.path) > maxInterface || ref.path == "." || ref.path == ".." || strings.ContainsAny(ref.path, "/: \t\n\v\f\r") {
		return `no interface has that name: 1 to 15 bytes without "/", ":" and white space`, ""
	}
	if _, err := host.Stat("/sys/class/net/" + ref.path); err != nil && ref.what == refInterface {
		return "cannot be found among the host's network interfaces: " + hostfs.Errno(err).Error(), diag.SeverityWarning
	}
	return "", ""
}

func checkNode(node *specs.DeviceNode, st *unix.Stat_t) (rule string, severity diag.Severity) {
	have, want := hostfs.DeviceType(st.Mode), node.Type
	if want == "u" {
		want = "c"
	}
	switch {
	case have == "":
		return "is a " + hostfs.TypeName(st.Mode) + " on the host; a device node must be a device or a FIFO", ""
	case want != "" && have != want:
		return fmt.Sprintf("is a %s on the host, and the spec says type %q", hostfs.TypeName(st.Mode), node.Type), ""
	case have != "p" && node.Major > 0 && (node.Major != int64(unix.Major(st.Rdev)) || node.Minor != int64(unix.Minor(st.Rdev))):
		// The spec's number counts, for the container and for its device cgroup.
		return fmt.Sprintf("is number %d:%d on the host, and the spec says another", unix.Major(st.Rdev), unix.Minor(st.Rdev)), diag.SeverityWarning
	}
	return "", ""
}
