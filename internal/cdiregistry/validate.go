// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Validate returns what is wrong with the text of a spec file, and nothing for a valid spec.
func Validate(text []byte) []*Diagnostic { return parseSpec(string(text), false).faults }

// Parse returns the spec that text holds, or what is wrong with it. The version has no
// leading "v".
func Parse(text []byte) (*specs.Spec, []*Diagnostic) {
	p := parseSpec(string(text), false)
	return p.spec, p.faults
}

// ValidateOptions are what ValidateFile checks beside the text. The zero value checks owners
// and modes as a node does, and nothing that the spec refers to.
type ValidateOptions struct {
	TrustAnyone bool
	// CheckHost checks whether the device nodes, mount sources, hooks and network interfaces
	// that the spec refers to are on the host now. They need not be before a container is
	// created. A diagnostic about one is errdefs.ErrFailedPrecondition.
	CheckHost bool
}

// ValidateFile checks one spec file as the registry does, and more where opts ask for it. A
// file without diagnostics, but for warnings, is usable. The content of a file that is not
// trusted is checked too, so that one run reports everything. The error is for a path that is
// no spec file: nothing is there, or a directory.
func ValidateFile(host hostfs.Root, file string, opts ValidateOptions) ([]*Diagnostic, error) {
	file = path.Clean(file)
	r, err := New(host, []string{path.Dir(file)}, Options{TrustAnyone: opts.TrustAnyone, DisableWatch: true})
	if err != nil {
		return nil, err
	}
	dir, err := r.openDir(r.dirs[0])
	if err != nil {
		return nil, fmt.Errorf("validate CDI spec %q: %w", file, err)
	}
	defer dir.close()
	f, parsed := r.loadFile(dir, path.Base(file), opts.CheckHost)
	if f == nil {
		return nil, fmt.Errorf("validate CDI spec %q: no such file: %w", file, errdefs.ErrNotFound)
	}
	var faults []*Diagnostic
	if f.err != nil {
		faults = f.err.Diagnostics
		if !opts.TrustAnyone && errdefs.IsPermissionDenied(f.err) {
			opts.TrustAnyone = true
			// An error means that the file was removed meanwhile.
			more, _ := ValidateFile(host, file, opts)
			return compactDiagnostics(slices.Concat(faults, more)), nil
		}
	}
	out := slices.Concat(faults, parsed.warnings)
	for _, ref := range parsed.refs {
		isReported := slices.ContainsFunc(faults, func(d *Diagnostic) bool { return d.Line == ref.place.Line && d.Column == ref.place.Column })
		if d := ref.checkHost(host); d != nil && !isReported {
			out = append(out, d)
		}
	}
	diag.List(out).Sort()
	return compactDiagnostics(out), nil
}

// compactDiagnostics drops a diagnostic that equals the one before it.
func compactDiagnostics(list []*Diagnostic) []*Diagnostic {
	return slices.CompactFunc(list, func(a, b *Diagnostic) bool { return *a == *b })
}
