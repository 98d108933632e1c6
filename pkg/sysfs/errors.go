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
	File string // host path of the sysfs file or node at fault; "" before any was read
	text string
	err  error
}

func (e *Error) Error() string { return e.text }

func (e *Error) Unwrap() error { return e.err }

// lookup is one operation on one device. Every error of it carries both.
type lookup struct {
	op     string // "find device nodes of PCI device"
	device string // the caller's address or name
}

// newError reports what was found in a file, and a hint, which may be "", at what to do about it.
func (l lookup) newError(file string, sentinel error, hint, format string, args ...any) error {
	parts := []string{l.op}
	if l.device != "" {
		parts[0] += fmt.Sprintf(" %q", l.device)
	}
	if file != "" {
		parts = append(parts, file)
	}
	text := strings.Join(append(parts, fmt.Sprintf(format, args...)), ": ")
	if hint != "" {
		text += "; " + hint
	}
	return &Error{File: file, text: text, err: sentinel}
}

// wrapError reports that file could not be read.
func (l lookup) wrapError(file string, err error, hint string) error {
	return l.newError(file, err, hint, "%v", hostfs.WithoutPath(err))
}
