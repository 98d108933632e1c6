// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// Severity says how much a finding matters.
type Severity string

// The severities of findings.
const (
	OK      Severity = "ok"
	Note    Severity = "note"
	Warning Severity = "warning"
	Unknown Severity = "unknown" // doctor could not find out
	Error   Severity = "error"
)

// Finding is the result of a check, or one of its results.
type Finding struct {
	Check    string   `json:"check"` // name of the check
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`
	Remedy   string   `json:"remedy,omitempty"`
	Fixed    bool     `json:"fixed,omitempty"` // by [Options.Fix]

	correct func(context.Context) error // nil if doctor cannot correct it
}

// findings are the results of one check, which have its name later.
type findings []Finding

// add adds a finding. The texts of errors have no sentinels. The result is valid until the next call.
func (f *findings) add(severity Severity, remedy, format string, args ...any) *Finding {
	*f = append(*f, Finding{Severity: severity, Found: diag.Sprintf(format, args...), Remedy: remedy})
	return &(*f)[len(*f)-1]
}

func (f *findings) addOK(format string, args ...any) { f.add(OK, "", format, args...) }

// runAsRoot is the remedy for files that only root can read.
const runAsRoot = "run doctor as root"

// lacksPermission reports whether an error is about missing permissions.
func lacksPermission(err error) bool {
	return errdefs.IsPermissionDenied(err) || errors.Is(err, os.ErrPermission)
}

// addError adds an error. A missing permission makes the result unknown.
func (f *findings) addError(remedy string, err error) {
	if lacksPermission(err) {
		f.add(Unknown, runAsRoot, "%v", err)
		return
	}
	f.add(Error, remedy, "%v", err)
}

// addUnread adds that a directory or file exists and cannot be read, so that its content is unknown.
func (f *findings) addUnread(err error) {
	switch {
	case err == nil || errdefs.IsNotFound(err):
	case lacksPermission(err):
		f.add(Unknown, runAsRoot, "not checked: %v", err)
	default:
		f.add(Unknown, "make it readable", "not checked: %v", err)
	}
}

// maxReported bounds the findings of one kind; further ones are counted.
const maxReported = 20

// fileFault is why a file cannot be used.
type fileFault struct {
	file    string
	err     error
	warning bool // the file can be used all the same
}

// addFaults adds the first faults of files, and counts the others.
func (f *findings) addFaults(remedy string, faults []fileFault) {
	for i, fault := range faults {
		switch {
		case i == maxReported:
			f.add(Error, "", "and %d more", len(faults)-maxReported)
			return
		case fault.warning:
			f.add(Warning, "", "%v", fault.err)
		default:
			f.add(Error, remedy+": `jackfield validate "+fault.file+"` has every finding", "%v", fault.err)
		}
	}
}

// fix corrects the findings that doctor can correct.
func (f findings) fix(ctx context.Context) {
	for i := range f {
		if f[i].correct == nil {
			continue
		}
		err := f[i].correct(ctx)
		f[i].Fixed = err == nil
		if err != nil {
			f[i].Found += fmt.Sprintf("; it cannot be corrected: %v", diag.ErrorText(err))
		}
	}
}
