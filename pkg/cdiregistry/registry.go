// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"go.yaml.in/yaml/v3"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Registry keeps the spec files of some directories.
type Registry struct {
	host hostfs.Root
	dirs []string
	opts Options
	mu   sync.Mutex
}

// New makes a registry of dirs, host paths in rising priority. Nothing is read
// before the first Snapshot.
func New(host hostfs.Root, dirs []string, opts Options) (*Registry, error) {
	for _, d := range dirs {
		if !path.IsAbs(d) {
			return nil, fmt.Errorf("open CDI spec directory %q: the path must be absolute: %w", d, errdefs.ErrInvalidArgument)
		}
	}
	if opts.Extensions == nil {
		opts.Extensions = []string{".json", ".yaml"}
	}
	if opts.MaxFileSize <= 0 {
		opts.MaxFileSize = DefaultMaxFileSize
	}
	return &Registry{host: host, dirs: slices.Clone(dirs), opts: opts}, nil
}

// Close gives the descriptors back.
func (r *Registry) Close() error { return nil }

// Snapshot is what the directories hold now.
func (r *Registry) Snapshot() *Snapshot {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Snapshot{dirs: r.dirs, devices: map[string][]*Device{}}
	for prio, dir := range r.dirs {
		names, err := r.host.ReadDir(dir, 1<<20)
		if err != nil {
			if !errors.Is(err, errdefs.ErrNotFound) {
				s.dirErrs = append(s.dirErrs, err)
			}
			continue
		}
		for _, name := range names {
			if slices.Contains(r.opts.Extensions, path.Ext(name)) {
				s.add(r.load(path.Join(dir, name), prio))
			}
		}
	}
	return s
}

func (r *Registry) load(file string, prio int) (File, *specs.Spec) {
	f := File{Path: file, Priority: prio}
	fail := func(rule string, sentinel error) (File, *specs.Spec) {
		f.Err = &SpecError{Path: file, Diagnostics: []Diagnostic{{Rule: rule}}, Err: sentinel}
		return f, nil
	}
	st, err := r.host.Stat(file)
	if err != nil {
		return fail(err.Error(), err)
	}
	f.Size, f.ModTime = st.Size, time.Unix(st.Mtim.Unix())
	data, err := r.host.ReadFile(file, r.opts.MaxFileSize)
	if err != nil {
		return fail(err.Error(), err)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	var raw *specs.Spec
	if err := dec.Decode(&raw); err != nil {
		return fail(err.Error(), nil)
	}
	if raw == nil || len(raw.Devices) == 0 {
		return fail("devices must have at least one entry", nil)
	}
	f.Kind = raw.Kind
	for _, d := range raw.Devices {
		f.Devices = append(f.Devices, d.Name)
		if !parser.IsQualifiedName(raw.Kind + "=" + d.Name) {
			return fail("kind or device name is invalid", nil)
		}
	}
	if err := specs.ValidateVersion(raw); err != nil {
		return fail(err.Error(), nil)
	}
	return f, raw
}

// Snapshot is an immutable view of the spec files.
type Snapshot struct {
	dirs    []string
	dirErrs []error
	files   []File
	devices map[string][]*Device
}

func (s *Snapshot) add(f File, spec *specs.Spec) {
	s.files = append(s.files, f)
	if spec == nil {
		return
	}
	for i, d := range spec.Devices {
		name := spec.Kind + "=" + d.Name
		s.devices[name] = append(s.devices[name], &Device{
			Name: name, Kind: spec.Kind, File: f.Path, Index: i, Priority: f.Priority,
			CDIVersion: strings.TrimPrefix(spec.Version, "v"), Annotations: d.Annotations, SpecAnnotations: spec.Annotations,
			SpecEdits: &spec.ContainerEdits, Edits: &d.ContainerEdits,
		})
	}
}

// Device is the device of a qualified name, "vendor.com/class=name". The errors
// are *NameError, *NotFoundError and *ConflictError.
func (s *Snapshot) Device(qualifiedName string) (*Device, error) {
	if _, _, _, err := parser.ParseQualifiedName(qualifiedName); err != nil {
		return nil, &NameError{Name: qualifiedName, Rule: err.Error()}
	}
	kind, _, _ := strings.Cut(qualifiedName, "=")
	cands := s.devices[qualifiedName]
	if len(cands) == 0 {
		e := &NotFoundError{Name: qualifiedName, Kind: kind, Dirs: s.dirs, DirErrors: s.dirErrs}
		if slices.Contains(s.Kinds(), kind) {
			e.Reason = NoDevice
		}
		return nil, e
	}
	best := cands[len(cands)-1]
	if len(cands) > 1 && cands[len(cands)-2].Priority == best.Priority {
		e := &ConflictError{Name: qualifiedName}
		for _, c := range cands {
			if c.Priority == best.Priority {
				e.Files = append(e.Files, c.File)
			}
		}
		return nil, e
	}
	d := *best
	return &d, nil
}

// Kind is every usable device of a kind, in natural order of the names.
func (s *Snapshot) Kind(kind string) ([]*Device, error) {
	var out []*Device
	for _, name := range s.Devices() {
		if strings.HasPrefix(name, kind+"=") {
			d, err := s.Device(name)
			if err != nil {
				return nil, err
			}
			out = append(out, d)
		}
	}
	if len(out) == 0 {
		return nil, &NotFoundError{Name: kind, Kind: kind, Dirs: s.dirs, DirErrors: s.dirErrs}
	}
	return out, nil
}

// Expand is what "kind=all" stands for: the device of that name when there is
// one, otherwise every device of the kind, none of them twice.
func (s *Snapshot) Expand(kind string) ([]*Device, error) {
	if d, err := s.Device(kind + "=all"); err == nil {
		return []*Device{d}, nil
	}
	return s.Kind(kind)
}

// Devices are the qualified names of all usable devices, sorted.
func (s *Snapshot) Devices() []string {
	var out []string
	for name := range s.devices {
		if _, err := s.Device(name); err == nil {
			out = append(out, name)
		}
	}
	sort.Strings(out)
	return out
}

// Kinds are the kinds that usable spec files declare, sorted.
func (s *Snapshot) Kinds() []string {
	var out []string
	for name := range s.devices {
		kind, _, _ := strings.Cut(name, "=")
		out = append(out, kind)
	}
	sort.Strings(out)
	return slices.Compact(out)
}

// Files are the spec files, refused ones among them, by priority and path.
func (s *Snapshot) Files() []File { return slices.Clone(s.files) }

// Dirs are the spec directories in rising priority.
func (s *Snapshot) Dirs() []Dir {
	out := make([]Dir, len(s.dirs))
	for i, d := range s.dirs {
		out[i] = Dir{Path: d, Priority: i}
	}
	return out
}
