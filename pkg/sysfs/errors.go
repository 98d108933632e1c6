// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Error is the error of every lookup in this package. It unwraps to a sentinel
// of github.com/containerd/errdefs: ErrInvalidArgument (the address or name, or
// a host file that is not what the kernel makes there), ErrNotFound (no such
// device, file or node), ErrFailedPrecondition (the device is bound to a driver
// that gives no such node), ErrConflict (sysfs and the host's node disagree, or
// a name belongs to another device), ErrResourceExhausted, ErrPermissionDenied.
type Error struct {
	Op      string // what was looked for, "find VFIO nodes of PCI device"
	Device  string // the address or name it was looked for, as it was given
	File    string // the host path of the sysfs file or node that stood in the way; "" before any was read
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

// lookup is one question about one device; it exists so that every error of the
// answer carries both.
type lookup struct{ op, device string }

func (l lookup) fail(file string, sentinel error, hint, format string, args ...any) error {
	return &Error{Op: l.op, Device: l.device, File: file, Problem: fmt.Sprintf(format, args...), Hint: hint, Err: sentinel}
}

// wrap reports that file could not be read.
func (l lookup) wrap(file string, err error, hint string) error {
	return &Error{Op: l.op, Device: l.device, File: file, Problem: bare(err), Hint: hint, Err: err}
}

// bare is the reason in err without the path, which Error prints itself.
func bare(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}
