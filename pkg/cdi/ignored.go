// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// maxIgnored bounds the files that one search for ignored files reads.
const maxIgnored = 100

// IgnoredFile is a CDI spec in a spec directory that is not read, because of the extension of its name.
type IgnoredFile struct {
	Path       string
	Kind       string
	Devices    []string // their names, without the kind
	Extensions []string // the extensions that are read
}

// String names the file and the extensions that are read.
func (f *IgnoredFile) String() string {
	return fmt.Sprintf("%s declares kind %q and is not read: its name must end in %s",
		f.Path, f.Kind, strings.Join(f.Extensions, " or "))
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

// ShadowedFile is a usable spec file with devices that a directory of higher priority also declares. The file of that
// directory takes precedence.
type ShadowedFile struct {
	Path    string
	By      string   // the file that takes precedence
	Devices []string // qualified names
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

// String names the shadowed devices and the file that takes precedence.
func (f *ShadowedFile) String() string {
	return fmt.Sprintf("%s is not used for %s: %s, of a directory of higher priority, declares it, too",
		f.Path, joinSome(f.Devices), f.By)
}
