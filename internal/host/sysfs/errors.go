// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// lookup is one operation on one device of a host. Every error of it carries operation and device.
type lookup struct {
	host   hostfs.Root
	op     string // "find device nodes of PCI device"
	device string // the caller's address or name
}

// newError returns the error for the content of a file. The hint is the remedy, or "".
func (l lookup) newError(file string, sentinel error, hint, format string, args ...any) error {
	op := l.op
	if l.device != "" {
		op += fmt.Sprintf(" %q", l.device)
	}
	return fmt.Errorf("%s: %w", op, &diag.Diagnostic{File: file, Rule: fmt.Sprintf(format, args...), Hint: hint,
		Kind: sentinel})
}

// wrapError reports that file could not be read. The hint, which may be "", is for a file that does not exist.
func (l lookup) wrapError(file string, err error, hint string) error {
	if !errdefs.IsNotFound(err) {
		hint = ""
	}
	return l.newError(file, err, hint, "%v", hostfs.WithoutPath(err))
}
