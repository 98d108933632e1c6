// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxIgnored bounds the files that one search for ignored files reads.
const maxIgnored = 100

// Snapshot is an immutable view of the spec files. It can be kept, and used by any number of goroutines.
type Snapshot struct {
	dirs    []Dir         // in rising priority
	files   []*specFile   // in the order of compareFiles
	devices []declaration // of the usable files, in the order of compareDeclarations

	// For messages: host and extensions find files that are not read.
	host       hostfs.Root
	extensions []string
}

// findDeclarations returns the declarations of a qualified name.
func (s *Snapshot) findDeclarations(name string) []declaration {
	compare := func(d declaration, name string) int { return strings.Compare(d.name, name) }
	i, found := slices.BinarySearchFunc(s.devices, name, compare)
	if !found {
		return nil
	}
	return firstName(s.devices[i:])
}

// byName yields the declarations of each name.
func (s *Snapshot) byName() iter.Seq[[]declaration] {
	return func(yield func([]declaration) bool) {
		for list := s.devices; len(list) > 0; {
			found := firstName(list)
			if !yield(found) {
				return
			}
			list = list[len(found):]
		}
	}
}

// Device returns the device with the given qualified name, "vendor.com/class=name". The errors are *NameError,
// *NotFoundError and *ConflictError.
func (s *Snapshot) Device(name string) (*Device, error) {
	found := s.findDeclarations(name)
	switch {
	case len(found) == 0:
		if _, _, _, err := ParseQualifiedName(name); err != nil {
			return nil, err
		}
		kind, device, _ := strings.Cut(name, "=")
		return nil, s.notFound(name, kind, device)
	case isConflict(found):
		return nil, newConflictError(found, found[0].file.dir)
	}
	return found[0].device(), nil
}

// Kind returns every usable device of a kind, in natural order of the names. Without any, the error is a
// *NotFoundError.
func (s *Snapshot) Kind(kind string) ([]*Device, error) {
	usable, _ := s.devicesOf(kind)
	if len(usable) == 0 {
		if err := checkKind(kind); err != nil {
			return nil, &NameError{Name: kind, Rule: err.Error()}
		}
		return nil, s.notFound(kind, kind, "")
	}
	slices.SortFunc(usable, func(a, b declaration) int { return naturalCompare(a.name, b.name) })
	out := make([]*Device, len(usable))
	for i, d := range usable {
		out[i] = d.device()
	}
	return out, nil
}

// devicesOf returns the usable devices of a kind, and the conflicts about the others, by name.
func (s *Snapshot) devicesOf(kind string) (usable []declaration, conflicts []*ConflictError) {
	for found := range s.byName() {
		switch {
		case found[0].file.kind != kind:
		case isConflict(found):
			conflicts = append(conflicts, newConflictError(found, found[0].file.dir))
		default:
			usable = append(usable, found[0])
		}
	}
	return usable, conflicts
}

// Devices returns the qualified names of all usable devices, sorted.
func (s *Snapshot) Devices() []string {
	var out []string
	for found := range s.byName() {
		if !isConflict(found) {
			out = append(out, found[0].name)
		}
	}
	return out
}

// Files returns the spec files, refused ones among them, by priority and path.
func (s *Snapshot) Files() []File {
	conflicts := s.conflictsByFile()
	var out []File
	for _, f := range s.files {
		out = append(out, f.describe(conflicts[f]))
	}
	return out
}

// conflictsByFile returns the conflicts about devices of each file, including conflicts that are Shadowed.
func (s *Snapshot) conflictsByFile() map[*specFile][]*ConflictError {
	out := map[*specFile][]*ConflictError{}
	for found := range s.byName() {
		for i, d := range found {
			dir := d.file.dir
			if i > 0 && found[i-1].file.dir == dir || i+1 < len(found) && found[i+1].file.dir == dir {
				out[d.file] = append(out[d.file], newConflictError(found, dir))
			}
		}
	}
	return out
}

// Dirs returns the spec directories in rising priority.
func (s *Snapshot) Dirs() []Dir { return slices.Clone(s.dirs) }

// Stats counts the files, devices and directories.
func (s *Snapshot) Stats() Stats {
	n := Stats{Files: len(s.files), Devices: len(s.Devices())}
	for _, dir := range s.dirs {
		if dir.Err != nil {
			n.DirsInError++
		}
	}
	for _, f := range s.Files() {
		if f.Err != nil {
			n.FilesInError++
		}
	}
	return n
}

// Expand returns the devices of "kind=all": the device named "all" if the kind has one, and otherwise every usable
// device of the kind in natural order, without duplicates.
//
// Vendors declare one piece of hardware under several names, such as its index and its UUID. Two devices of a kind
// are duplicates if
//
//   - all their edits are equal, in any order of each list, or
//   - they have the same device nodes (at least one), and exactly one of the two names contains a UUID. Their env can
//     differ, because it contains the name.
//
// The first duplicate in natural order is kept. A conflict about the name "all" is a *ConflictError. A kind without
// usable devices is a *NotFoundError.
func (s *Snapshot) Expand(kind string) ([]*Device, error) {
	switch d, err := s.Device(kind + "=all"); {
	case err == nil:
		return []*Device{d}, nil
	case errdefs.IsConflict(err):
		return nil, err
	}
	list, err := s.Kind(kind)
	if err != nil {
		return nil, err
	}
	seen, uuidNodes, otherNodes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	kept := list[:0]
	for _, d := range list {
		edits, nodes := editsKey(d.Edits), nodesKey(d.Edits)
		same, other := otherNodes, uuidNodes
		if name.HasUUID(d.Name[len(d.Kind)+1:]) {
			same, other = uuidNodes, otherNodes
		}
		if seen[edits] || nodes != "" && other[nodes] {
			continue
		}
		seen[edits], same[nodes] = true, true
		kept = append(kept, d)
	}
	return kept, nil
}

// Skipped returns the reasons why Expand omits devices of a kind: a *SpecError for each refused file, and then a
// *ConflictError for each device that several files of one priority declare.
func (s *Snapshot) Skipped(kind string) []error {
	var reasons []error
	for _, f := range s.files {
		if f.err != nil && f.kind == kind {
			reasons = append(reasons, f.err)
		}
	}
	_, conflicts := s.devicesOf(kind)
	for _, err := range conflicts {
		reasons = append(reasons, err)
	}
	return reasons
}

// Ignored returns the CDI specs whose names have another extension, such as vendor.yml. It reads the directories and
// these files: it is for messages, and no lookup calls it.
func (s *Snapshot) Ignored() (found []IgnoredFile) {
	for _, dir := range s.dirs {
		names, _ := s.host.ReadDir(dir.Path, maxNames) // Dir.Err has the error
		for _, name := range names {
			ext := path.Ext(name)
			isSpec := slices.Contains([]string{".json", ".yaml", ".yml"}, strings.ToLower(ext))
			if !isSpec || slices.Contains(s.extensions, ext) || len(found) == maxIgnored {
				continue
			}
			file := path.Join(dir.Path, name)
			text, err := s.host.ReadFile(file, MaxFileSize)
			if err != nil {
				continue // it can be any file
			}
			if spec := parseSpec(string(text), false); spec.kind != "" {
				found = append(found, IgnoredFile{Path: file, Kind: spec.kind, Devices: spec.names,
					Extensions: slices.Clone(s.extensions)})
			}
		}
	}
	return found
}

// Shadowed returns the shadowed files, in the order of their first device. A file does not shadow itself: /run/cdi and
// /var/run/cdi are one directory on most hosts.
func (s *Snapshot) Shadowed() (files []ShadowedFile) {
	for found := range s.byName() {
		for _, d := range found[1:] {
			if d.file.dir == found[0].file.dir {
				continue // a conflict
			}
			path, by := d.file.hostPath(), found[0].file.hostPath()
			i := slices.IndexFunc(files, func(f ShadowedFile) bool { return f.Path == path && f.By == by })
			if i < 0 {
				i, files = len(files), append(files, ShadowedFile{Path: path, By: by})
			}
			files[i].Devices = append(files[i].Devices, d.name)
		}
	}
	return slices.DeleteFunc(files, func(f ShadowedFile) bool { return s.isSameFile(f.Path, f.By) })
}

// isSameFile reports whether two paths lead to one file.
func (s *Snapshot) isSameFile(a, b string) bool {
	x, err := s.host.Stat(a)
	y, err2 := s.host.Stat(b)
	return err == nil && err2 == nil && hostfs.StatID(&x) == hostfs.StatID(&y)
}

// notFound returns the error for a name; device is "" for all devices of the kind.
func (s *Snapshot) notFound(name, kind, device string) *NotFoundError {
	e := &NotFoundError{Name: name, Kind: kind, Reason: NoSpec, device: device, snapshot: s}
	for _, f := range s.files {
		switch {
		case f.kind != kind:
		case f.err != nil:
			if device == "" || slices.Contains(f.refused, device) {
				e.Reason = Refused
				return e
			}
		case device == "":
			e.Reason = NoDevices
		default:
			e.Reason = NoDevice
		}
	}
	return e
}
