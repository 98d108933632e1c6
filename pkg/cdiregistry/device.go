// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"time"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Device is one CDI device as its spec file declares it. It belongs to the
// caller, who may change every part of it.
type Device struct {
	// Name is the qualified name, "vendor.com/class=name".
	Name string
	// Kind is "vendor.com/class".
	Kind string
	// File is the host path of the spec file. Devices of one file share their
	// spec-level edits, which a container gets once, so File tells whether two
	// devices come with the same ones.
	File string
	// Index is the position in the file's list of devices, from 0.
	Index int
	// Priority is the position of the file's directory among the spec
	// directories, from 0; the higher one wins.
	Priority int
	// CDIVersion is the file's cdiVersion without a leading "v".
	CDIVersion string
	// Annotations are those of the device, SpecAnnotations those of the file.
	Annotations     map[string]string
	SpecAnnotations map[string]string
	// SpecEdits go with any device of the file, before Edits. Neither is nil.
	SpecEdits *specs.ContainerEdits
	Edits     *specs.ContainerEdits
}

// File is what a snapshot knows about one spec file.
type File struct {
	// Path is the host path, Priority that of its directory.
	Path     string
	Priority int
	// Kind and Devices (names, not qualified, in the file's order) are as far as
	// they could be read when the file is refused.
	Kind    string
	Devices []string
	// Err is nil, a *SpecError when the file is refused, or a *ConflictError
	// (several joined) when devices of the file are declared at the same priority
	// elsewhere; the file's other devices are usable then.
	Err error
	// Size is in bytes.
	Size    int64
	ModTime time.Time
}

// Dir is what a snapshot knows about one spec directory.
type Dir struct {
	Path     string
	Priority int
	// Missing tells that the directory does not exist, which is no error.
	Missing bool
	// Watched tells whether changes are announced by the kernel; an unwatched
	// directory is listed again at each snapshot.
	Watched bool
	// Err is why the directory could not be read, or is refused.
	Err error
}
