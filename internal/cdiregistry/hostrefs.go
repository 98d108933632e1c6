// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"

	"github.com/containerd/errdefs"

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
