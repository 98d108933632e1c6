// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// ParseSpec returns the spec in the text of a spec file, JSON or YAML. The version has no leading "v". The error is a
// *SpecError.
func ParseSpec(text []byte) (*specs.Spec, error) {
	p := parseSpec(string(text), false)
	if len(p.faults) > 0 {
		return nil, &SpecError{Faults: fieldErrors(p.faults)}
	}
	return p.spec, nil
}

// ValidateOptions change how [ValidateFile] checks a file. The zero value checks owners and modes as a [Cache] does,
// and nothing that the spec refers to.
type ValidateOptions struct {
	Root        string // as in [Options]
	TrustAnyone bool   // as in [Options]
	// CheckHost checks whether the device nodes, mount sources, hooks and network interfaces that the spec refers to
	// are on the host now. They need not be before a container is created. A fault about one is
	// errdefs.ErrFailedPrecondition.
	CheckHost bool
}

// ValidateFile checks one spec file as a [Cache] does, and more if opts ask for it. A file with warnings alone is
// usable. The content of a file that is not trusted is checked too, so that one run reports everything. The error is
// for a path that is no spec file: nothing exists there, or a directory.
func ValidateFile(file string, opts ValidateOptions) (FieldErrors, error) {
	file = path.Clean(file)
	dirs := []string{path.Dir(file)}
	cache, err := NewCache(Options{Root: opts.Root, SpecDirs: dirs, TrustAnyone: opts.TrustAnyone, DisableWatch: true})
	if err != nil {
		return nil, err
	}
	found, err := cache.reader.validateFile(path.Base(file), opts.CheckHost)
	if err != nil {
		return nil, fmt.Errorf("validate CDI spec %q: %w", file, err)
	}
	return fieldErrors(found), nil
}

// compactDiagnostics drops a diagnostic that equals the one before it.
func compactDiagnostics(list diag.List) diag.List {
	return slices.CompactFunc(list, func(a, b *diag.Diagnostic) bool { return *a == *b })
}
