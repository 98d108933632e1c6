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
	d := ref.place
	if ref.what == refInterface || ref.what == refInterfaceName {
		return ref.checkInterface(host, &d)
	}
	st, err := host.Stat(ref.path)
	mode := st.Mode & unix.S_IFMT
	switch {
	case err != nil:
		d.Rule = "cannot be found on the host: " + hostfs.Errno(err).Error()
		if !errors.Is(err, errdefs.ErrNotFound) {
			d.Rule = "cannot be read on the host: " + hostfs.Errno(err).Error()
		}
		// A node that the spec describes in full is created without one on the host.
		if ref.what == refNode && ref.node.Type != "" && (ref.node.Major != 0 || ref.node.Type == "p") {
			d.Severity = diag.SeverityWarning
		}
		return &d
	case ref.what == refHook && (mode != unix.S_IFREG || st.Mode&0o111 == 0):
		d.Rule = fmt.Sprintf("is a %s of mode %04o on the host; a hook must be an executable file", hostfs.TypeName(st.Mode), st.Mode&0o7777)
		return &d
	case ref.what == refNode:
		return checkNode(ref.node, &d, &st)
	}
	return nil
}

// checkInterface warns of a missing interface: while a container has it, the host has not.
func (ref hostRef) checkInterface(host hostfs.Root, d *Diagnostic) *Diagnostic {
	if len(ref.path) > maxInterface || ref.path == "." || ref.path == ".." || strings.ContainsAny(ref.path, "/: \t\n\v\f\r") {
		d.Rule = `no interface has that name: 1 to 15 bytes without "/", ":" and white space`
		return d
	}
	if ref.what == refInterfaceName {
		return nil
	}
	d.Severity = diag.SeverityWarning
	if _, err := host.Stat("/sys/class/net/" + ref.path); err != nil {
		d.Rule = "cannot be found among the host's network interfaces: " + hostfs.Errno(err).Error()
		return d
	}
	return nil
}

func checkNode(node *specs.DeviceNode, d *Diagnostic, st *unix.Stat_t) *Diagnostic {
	mode := st.Mode & unix.S_IFMT
	have := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b", unix.S_IFIFO: "p"}[mode]
	want := node.Type
	if want == "u" {
		want = "c"
	}
	switch {
	case have == "":
		d.Rule = "is a " + hostfs.TypeName(mode) + " on the host; a device node must be a device or a FIFO"
	case want != "" && have != want:
		d.Rule = fmt.Sprintf("is a %s on the host, and the spec says type %q", hostfs.TypeName(mode), node.Type)
	case mode != unix.S_IFIFO && node.Major > 0 && (node.Major != int64(unix.Major(st.Rdev)) || node.Minor != int64(unix.Minor(st.Rdev))):
		// The spec's number counts, for the container and for its device cgroup.
		d.Severity = diag.SeverityWarning
		d.Rule = fmt.Sprintf("is number %d:%d on the host, and the spec says another", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	default:
		return nil
	}
	return d
}
