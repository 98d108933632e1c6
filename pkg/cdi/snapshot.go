// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Snapshot is an immutable view of the spec files. It can be kept, and used by any number of goroutines.
type Snapshot struct {
	dirs    []Dir         // in rising priority
	files   []*specFile   // in the order of compareFiles
	devices []declaration // of the usable files, in the order of compareDeclarations

	// For messages: host and extensions find files that are not read.
	host       hostfs.Root
	extensions []string
}

// compareFiles orders files by the priority of their directory, and by name.
func compareFiles(a, b *specFile) int {
	return cmp.Or(a.dir.priority-b.dir.priority, strings.Compare(a.name, b.name))
}

// declaration is a device of a usable file.
type declaration struct {
	name  string // qualified
	file  *specFile
	index int
}

// compareDeclarations orders declarations by qualified name, and declarations of one name by falling priority.
func compareDeclarations(a, b declaration) int {
	return cmp.Or(strings.Compare(a.name, b.name), compareFiles(b.file, a.file))
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

// firstName returns the declarations at the start of a list that have the same name.
func firstName(list []declaration) []declaration {
	if n := slices.IndexFunc(list, func(d declaration) bool { return d.name != list[0].name }); n > 0 {
		return list[:n]
	}
	return list
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

// isConflict reports whether several files of the highest priority have the declarations of one name.
func isConflict(found []declaration) bool {
	return len(found) > 1 && found[0].file.dir.priority == found[1].file.dir.priority
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

// File describes one spec file of a snapshot.
type File struct {
	Path     string // on the host
	Priority int    // of the directory
	// Kind and Devices (unqualified names in the file's order) of a refused file are set as far as they could be read.
	Kind    string
	Devices []string
	// Conflicts are the devices of the file that other files of the same priority also declare. The file's other
	// devices are usable.
	Conflicts []*ConflictError
	// Err is nil, a *SpecError for a refused file, or the joined Conflicts.
	Err error
	// Size is in bytes.
	Size    int64
	ModTime time.Time
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

func (f *specFile) describe(conflicts []*ConflictError) File {
	out := File{Path: f.hostPath(), Priority: f.dir.priority, Kind: f.kind, Devices: slices.Clone(f.deviceNames()),
		Conflicts: conflicts, Size: f.size}
	if f.mtime != 0 {
		out.ModTime = time.Unix(0, f.mtime)
	}
	var errs []error
	for _, conflict := range conflicts {
		errs = append(errs, conflict)
	}
	if out.Err = errors.Join(errs...); f.err != nil {
		out.Err = f.err
	}
	return out
}

// Dir describes one spec directory of a snapshot.
type Dir struct {
	Path     string
	Priority int
	// Missing means that the directory does not exist, which is no error.
	Missing bool
	// Watched means that the kernel reports changes. A directory that is not watched is listed for each snapshot.
	Watched bool
	// Err is a *DirError if the directory could not be read.
	Err error
}

// Dirs returns the spec directories in rising priority.
func (s *Snapshot) Dirs() []Dir { return slices.Clone(s.dirs) }

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

// Stats are the numbers of files, devices and directories of a snapshot.
type Stats struct {
	Files        int // spec files, refused ones among them
	FilesInError int // refused files, and files with a device that another file of the directory declares
	Devices      int // usable devices
	DirsInError  int // directories that exist and cannot be read
}

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
