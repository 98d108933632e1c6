// SPDX-License-Identifier: Apache-2.0

// Package orphans finds files whose owner, a pod sandbox, a container or a resource claim, is gone.
//
// A file is an orphan only where the form of the IDs in its name shows that a list of living owners
// would have named its owner. The caller also wants an age: an owner may be created after the list.
package orphans

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/cdiregistry"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// DefaultAge is the least age of an orphan. It is longer than anybody takes from listing the owners
// to removing files.
const DefaultAge = 10 * time.Minute

// The number of digits in a runtime's ID, shortened and whole.
const minRuntimeID, maxRuntimeID = 12, 64

// isNotHex reports whether a character is no digit of a runtime's ID.
func isNotHex(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) }

// IsRuntimeID reports whether a text is an ID of a container runtime, whole or shortened.
func IsRuntimeID(text string) bool {
	return len(text) >= minRuntimeID && len(text) <= maxRuntimeID && !strings.ContainsFunc(text, isNotHex)
}

// RuntimeIDIn returns the first whole ID of a container runtime in a text, "" for none.
func RuntimeIDIn(text string) string {
	for digits := range strings.FieldsFuncSeq(text, isNotHex) {
		if len(digits) >= maxRuntimeID {
			return digits[:maxRuntimeID]
		}
	}
	return ""
}

// IsDeviceInfo reports whether the name of a device-info file of a network attachment has the ID of
// a sandbox, and no ID of a living sandbox.
func IsDeviceInfo(name string, alive []string) bool {
	_, id, _ := deviceinfo.SplitCNIFileName(name)
	return id != "" && !slices.ContainsFunc(alive, func(a string) bool { return strings.Contains(name, "-"+a) })
}

// MaxNames bounds the entries of a directory that are read.
const MaxNames = 1 << 20

// OldFiles returns the entries of a directory that were last changed before a time and that a
// condition holds for, sorted.
func OldFiles(host hostfs.Root, dir string, before time.Time, isOrphan func(name string) bool) ([]string, error) {
	names, err := host.ReadDir(dir, MaxNames)
	return slices.DeleteFunc(names, func(name string) bool {
		if !isOrphan(name) {
			return true
		}
		st, err := host.Lstat(path.Join(dir, name))
		return err != nil || !time.Unix(st.Mtim.Unix()).Before(before)
	}), err
}

// TransientSpecs returns the transient CDI spec files in the directory where CDI's libraries write
// them, the last one. In other directories a name of that form says nothing.
func TransientSpecs(s *cdiregistry.Snapshot) []cdiregistry.Transient {
	last := len(s.Dirs()) - 1
	return slices.DeleteFunc(s.Transients(), func(t cdiregistry.Transient) bool { return t.File.Priority != last })
}

// WithoutOwner returns the CDI spec files older than before whose owner is not among the living
// ones. A driver may add to the owner's ID in a file's name.
//
// A list of UIDs says nothing of owners that are known by another form of ID, and neither does one
// of containers: drivers keep the files of all their claims ("base", "common") under such names,
// too.
func WithoutOwner(list []cdiregistry.Transient, alive []string, before time.Time) []cdiregistry.Transient {
	uids, containers, names := false, false, false
	parts := make([]string, len(alive))
	for i, id := range alive {
		id = strings.ToLower(id)
		parts[i] = strings.ReplaceAll(id, "/", "_")
		isUID, isContainer := name.IsUID(id), IsRuntimeID(id)
		uids, containers, names = uids || isUID, containers || isContainer, names || !isUID && !isContainer
	}
	var out []cdiregistry.Transient
	for _, t := range list {
		owner := strings.ToLower(t.ID)
		inList := names || uids && name.HasUUID(owner) || containers && RuntimeIDIn(owner) != ""
		isAlive := slices.ContainsFunc(parts, func(id string) bool { return strings.Contains(owner, id) })
		if inList && !isAlive && !t.File.ModTime.After(before) {
			out = append(out, t)
		}
	}
	return out
}
