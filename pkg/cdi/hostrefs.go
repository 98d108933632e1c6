// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// hostRef is a path, or a network interface, that must exist on the host when a container is created.
type hostRef struct {
	place diag.Diagnostic
	check func(host hostfs.Root) *diag.Diagnostic
}

// addRef records a reference at the value n if the caller requested references.
func (c *checker) addRef(n *jsontree.Node, key string, check func(host hostfs.Root) *diag.Diagnostic) {
	if !c.withRefs || n == nil || n.Text == "" {
		return
	}
	place := diag.Diagnostic{Line: n.Line, Column: n.Column, Field: c.fieldPath(key), Found: fmt.Sprintf("%q", n.Text)}
	c.refs = append(c.refs, hostRef{place, check})
}

// checkHost returns the fault of a reference that is missing on the host or of the wrong type, or nil.
func (ref hostRef) checkHost(host hostfs.Root) *diag.Diagnostic {
	fault := ref.check(host)
	if fault == nil {
		return nil
	}
	d := ref.place
	d.Rule, d.Hint, d.Severity, d.Kind = fault.Rule, fault.Hint, fault.Severity, errdefs.ErrFailedPrecondition
	return &d
}
