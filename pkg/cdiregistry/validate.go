// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Validator checks the texts of spec files. The zero value is ready; one Validator
// serves one goroutine and is cheaper than several, as it reuses its memory.
type Validator struct{ c checker }

// Validate gives what is wrong with text, nothing when it is a valid spec.
func (v *Validator) Validate(text []byte) []Diagnostic {
	v.c.useRefs = false
	v.c.parse(string(text), "")
	diags := v.c.diags
	v.c.release()
	return diags
}

// Parse gives the spec that text holds, in the types of the CDI project, or what
// is wrong with it. A leading "v" of the version is dropped.
func (v *Validator) Parse(text []byte) (*specs.Spec, []Diagnostic) {
	v.c.useRefs = false
	p := v.c.parse(string(text), "")
	b := p.content(nil)
	diags := v.c.diags
	v.c.release()
	if len(diags) > 0 {
		return nil, diags
	}
	return b.spec(), nil
}

// ValidateOptions are what ValidateFile looks at beside the text. The zero value
// looks at owners and modes as a node does, and not at what the spec refers to.
type ValidateOptions struct {
	Trust       Trust
	MaxFileSize int64
	// CheckHost looks whether device nodes, mount sources, hooks and network interfaces
	// that the spec refers to are on the host now. They need not be before a container
	// is made.
	CheckHost bool
}

// ValidateFile checks one spec file the way the registry does, and more when asked
// to. No diagnostics means that the file is usable; those of SeverityWarning
// do not refuse it. What a file holds that is not believed is checked all the same:
// one run tells all. The error is for a path that is no spec file at all: nothing
// there, or a directory.
func ValidateFile(host hostfs.Root, file string, opts ValidateOptions) ([]Diagnostic, error) {
	file = path.Clean(file)
	r, err := New(host, []string{path.Dir(file)}, Options{Trust: opts.Trust, MaxFileSize: opts.MaxFileSize, DisableWatch: true})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	dir, err := r.openDir(r.dirs[0])
	if err != nil {
		return nil, fmt.Errorf("validate CDI spec %q: %w", file, err)
	}
	defer dir.close()
	l := &loader{}
	l.useRefs = opts.CheckHost
	e := r.load(l, dir, path.Base(file))
	if e == nil {
		return nil, fmt.Errorf("validate CDI spec %q: no such file: %w", file, errdefs.ErrNotFound)
	}
	var out []Diagnostic
	if e.err != nil {
		out = slices.Clone(e.err.Diagnostics)
		if opts.Trust != TrustAnyone && errdefs.IsPermissionDenied(e.err) {
			opts.Trust = TrustAnyone
			more, err := ValidateFile(host, file, opts)
			if err != nil {
				return out, nil // it went meanwhile
			}
			out = append(out, more...)
			return slices.Compact(out), nil
		}
	}
	wrong := len(out)
	out = append(out, l.warnings...)
	for _, ref := range l.refs {
		if ref.wrong(out[:wrong]) {
			continue
		}
		if d, ok := ref.check(host); !ok {
			out = append(out, d)
		}
	}
	sortDiagnostics(out)
	return slices.Compact(out), nil
}

// wrong reports that something was found at the reference's place already.
func (ref hostRef) wrong(found []Diagnostic) bool {
	return slices.ContainsFunc(found, func(d Diagnostic) bool { return d.Line == ref.place.Line && d.Column == ref.place.Column })
}

// check looks whether the reference leads to something of the right kind.
func (ref hostRef) check(host hostfs.Root) (Diagnostic, bool) {
	d := ref.place
	if ref.what == refInterface || ref.what == refInterfaceName {
		return ref.checkInterface(host, d)
	}
	st, err := host.Stat(ref.path)
	mode := st.Mode & unix.S_IFMT
	switch {
	case err != nil:
		d.Rule = "cannot be found on the host: " + errnoOf(err).Error()
		if !errors.Is(err, errdefs.ErrNotFound) {
			d.Rule = "cannot be looked at on the host: " + errnoOf(err).Error()
		}
		// A node that the spec describes in full is made without one on the host.
		if ref.what == refNode && ref.nodeType != "" && (ref.major || ref.nodeType == "p") {
			d.Severity = SeverityWarning
		}
		return d, false
	case ref.what == refHook && (mode != unix.S_IFREG || st.Mode&0o111 == 0):
		d.Rule = fmt.Sprintf("is a %s of mode %04o on the host; a hook must be an executable file", hostfs.TypeName(st.Mode), st.Mode&0o7777)
		return d, false
	case ref.what == refNode:
		return ref.checkNode(d, st)
	}
	return d, true
}

// checkInterface warns: an interface that a container has is not the host's until
// the container goes.
func (ref hostRef) checkInterface(host hostfs.Root, d Diagnostic) (Diagnostic, bool) {
	d.Severity = SeverityWarning
	if len(ref.path) > maxInterface || ref.path == "." || ref.path == ".." || strings.ContainsAny(ref.path, "/: \t\n\v\f\r") {
		d.Severity = SeverityError
		d.Rule = `no interface has that name: 1 to 15 bytes without "/", ":" and white space`
		return d, false
	}
	if ref.what == refInterfaceName {
		return d, true
	}
	if _, err := host.Stat("/sys/class/net/" + ref.path); err != nil {
		d.Rule = "cannot be found among the host's network interfaces: " + errnoOf(err).Error()
		return d, false
	}
	return d, true
}

func (ref hostRef) checkNode(d Diagnostic, st unix.Stat_t) (Diagnostic, bool) {
	mode := st.Mode & unix.S_IFMT
	have := map[uint32]string{unix.S_IFCHR: "c", unix.S_IFBLK: "b", unix.S_IFIFO: "p"}[mode]
	want := ref.nodeType
	if want == "u" {
		want = "c"
	}
	switch {
	case have == "":
		d.Rule = "is a " + hostfs.TypeName(mode) + " on the host; a device node must be a device or a FIFO"
	case want != "" && have != want:
		d.Rule = fmt.Sprintf("is a %s on the host, and the spec says type %q", hostfs.TypeName(mode), ref.nodeType)
	case mode != unix.S_IFIFO && ref.otherNumber(st.Rdev):
		// What the spec says counts, for the container and for its device cgroup.
		d.Severity = SeverityWarning
		d.Rule = fmt.Sprintf("is number %d:%d on the host, and the spec says another", unix.Major(st.Rdev), unix.Minor(st.Rdev))
	default:
		return d, true
	}
	return d, false
}

// otherNumber reports that the spec gives the node a number that is not dev.
func (ref hostRef) otherNumber(dev uint64) bool {
	major, minor := ref.numbers[0], max(ref.numbers[1], 0)
	return major > 0 && (major != int64(unix.Major(dev)) || minor != int64(unix.Minor(dev)))
}
