// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"fmt"
	"strings"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Error is the error of every lookup in this package. It unwraps to a sentinel
// of github.com/containerd/errdefs: ErrInvalidArgument (the address or name, or
// a host file that is not what the kernel makes there), ErrNotFound (no such
// device, file or node), ErrFailedPrecondition (the device is bound to a driver
// without such a node), ErrConflict (sysfs and the host's node disagree, or
// a name belongs to another device), ErrResourceExhausted, ErrPermissionDenied.
type Error struct {
	Op      string // the operation, "find device nodes of PCI device"
	Device  string // the caller's address or name
	File    string // host path of the sysfs file or node at fault; "" before any was read
	Problem string // what was found there
	Hint    string // what to do about it; may be ""
	Err     error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if e.Device != "" {
		fmt.Fprintf(&b, " %q", e.Device)
	}
	if e.File != "" {
		b.WriteString(": " + e.File)
	}
	b.WriteString(": " + e.Problem)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// lookup is one operation on one device. Every error of it carries both.
type lookup struct{ op, device string }

func (l lookup) newError(file string, sentinel error, hint, format string, args ...any) error {
	return &Error{Op: l.op, Device: l.device, File: file, Problem: fmt.Sprintf(format, args...), Hint: hint, Err: sentinel}
}

// wrapError reports that file could not be read.
func (l lookup) wrapError(file string, err error, hint string) error {
	return &Error{Op: l.op, Device: l.device, File: file, Problem: hostfs.WithoutPath(err).Error(), Hint: hint, Err: err}
}
