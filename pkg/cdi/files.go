// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"strings"
	"time"
)

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

// Stats are the numbers of files, devices and directories of a snapshot.
type Stats struct {
	Files        int // spec files, refused ones among them
	FilesInError int // refused files, and files with a device that another file of the directory declares
	Devices      int // usable devices
	DirsInError  int // directories that exist and cannot be read
}

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

// ShadowedFile is a usable spec file with devices that a directory of higher priority also declares. The file of that
// directory takes precedence.
type ShadowedFile struct {
	Path    string
	By      string   // the file that takes precedence
	Devices []string // qualified names
}

// String names the shadowed devices and the file that takes precedence.
func (f *ShadowedFile) String() string {
	return fmt.Sprintf("%s is not used for %s: %s, of a directory of higher priority, declares it, too",
		f.Path, joinSome(f.Devices), f.By)
}
