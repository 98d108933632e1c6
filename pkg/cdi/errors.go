// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// SpecError is the reason why a spec file is refused. Its faults unwrap to sentinels of containerd/errdefs:
// ErrInvalidArgument for the content, ErrPermissionDenied for a file that others can write or that cannot be opened,
// ErrNotFound for a dangling symlink, and ErrUnavailable if reading fails.
type SpecError struct {
	Path   string      // host path of the file
	Faults FieldErrors // at least one, in the order of the file
}

// Error names the file, the first fault, and the number of further faults.
func (e *SpecError) Error() string {
	return "load CDI spec " + diag.All("", e.Faults).WithFile(e.Path).Summary()
}

// Unwrap returns each fault.
func (e *SpecError) Unwrap() []error { return e.Faults.Unwrap() }

// ConflictError is a device that several files of one priority declare, so that none of the declarations is usable
// (CDI: no file of a directory precedes another). It unwraps to errdefs.ErrConflict.
type ConflictError struct {
	// Name is the qualified name.
	Name string
	// Files declare it, sorted.
	Files []string
	// Shadowed means that a directory of higher priority declares the device once, so that it is usable all the same.
	Shadowed bool
}

// newConflictError returns the conflict between the declarations of one name that are in dir.
func newConflictError(found []declaration, dir *specDir) *ConflictError {
	e := &ConflictError{Name: found[0].name, Shadowed: found[0].file.dir != dir && !isConflict(found)}
	for _, d := range found {
		if d.file.dir == dir {
			e.Files = append(e.Files, d.file.hostPath())
		}
	}
	slices.Sort(e.Files)
	return e
}

// Error names the device and the files.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("resolve CDI device %q: declared at the same priority by %s; keep it in one of them",
		e.Name, joinSome(e.Files))
}

// Unwrap returns errdefs.ErrConflict.
func (e *ConflictError) Unwrap() error { return errdefs.ErrConflict }

// NameError is a name that is not a qualified CDI device name or a kind. It unwraps to
// errdefs.ErrInvalidArgument.
type NameError struct {
	Name string
	Rule string // the rule that the name violates
}

// Error names the name and the rule.
func (e *NameError) Error() string {
	return fmt.Sprintf("resolve CDI device %s: %s", diag.Quote(e.Name), e.Rule)
}

// Unwrap returns errdefs.ErrInvalidArgument.
func (e *NameError) Unwrap() error { return errdefs.ErrInvalidArgument }

// DirError is a spec directory that could not be read. It unwraps to the cause.
type DirError struct {
	Path string
	Err  error
}

// Error names the directory and the cause.
func (e *DirError) Error() string {
	return "read CDI spec directory \"" + e.Path + "\": " + diag.ErrorText(hostfs.WithoutPath(e.Err))
}

// Unwrap returns the cause.
func (e *DirError) Unwrap() error { return e.Err }

// joinSome joins the first few of a list of paths.
func joinSome(paths []string) string {
	return strings.Join(textsOfSome(paths, func(path string) string { return path }), ", ")
}

// textsOfSome returns the texts of the first few items. The last text has the number of further items.
func textsOfSome[T any](list []T, text func(T) string) []string {
	var out []string
	for _, item := range list[:min(len(list), maxListed)] {
		out = append(out, text(item))
	}
	if more := len(list) - len(out); more > 0 {
		out[len(out)-1] += fmt.Sprintf(" (and %d more)", more)
	}
	return out
}
