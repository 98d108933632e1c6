// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// maxIgnored bounds the files that one search for ignored files reads.
const maxIgnored = 100

// IgnoredFile is a file in a spec directory that is a CDI spec and is not read, because of the end of its name.
type IgnoredFile struct {
	Path       string
	Kind       string
	Devices    []string // their names, without the kind
	Extensions []string // that are read
}

// String says which file is not read, and why.
func (f *IgnoredFile) String() string {
	return fmt.Sprintf("%s declares kind %q and is not read: its name must end in %s", f.Path, f.Kind, strings.Join(f.Extensions, " or "))
}

// lister reads spec directories for a snapshot that explains what is missing in it.
type lister struct {
	host       hostfs.Root
	extensions []string
}

// Ignored returns the files of the directories that are CDI specs under a name that is not read, such as vendor.yml. It
// reads the directories and these files: it is for messages, and not part of a lookup.
func (s *Snapshot) Ignored() (found []IgnoredFile) {
	for _, dir := range s.dirs {
		names, _ := s.list.host.ReadDir(dir.Path, maxNames) // Dir.Err has the error
		for _, name := range names {
			ext := path.Ext(name)
			if !slices.Contains([]string{".json", ".yaml", ".yml"}, strings.ToLower(ext)) || slices.Contains(s.list.extensions, ext) || len(found) == maxIgnored {
				continue
			}
			file := path.Join(dir.Path, name)
			text, err := s.list.host.ReadFile(file, DefaultMaxFileSize)
			if err != nil {
				continue // nothing says that it is a spec
			}
			if spec := parseSpec(string(text), false); spec.kind != "" {
				found = append(found, IgnoredFile{Path: file, Kind: spec.kind, Devices: spec.names, Extensions: slices.Clone(s.list.extensions)})
			}
		}
	}
	return found
}
