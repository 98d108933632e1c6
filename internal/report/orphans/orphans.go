// SPDX-License-Identifier: Apache-2.0

// Package orphans finds files whose owner, a pod sandbox, a container or a resource claim, is gone.
//
// A file is an orphan only where the form of the IDs in its name shows that a list of living owners
// would have named its owner. The caller also wants an age: an owner may be created after the list.
package orphans

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/cdi"
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
func IsDeviceInfo(file string, alive []string) bool {
	_, id, _ := name.SplitInfoFile(file)
	return id != "" && !slices.ContainsFunc(alive, func(a string) bool { return strings.Contains(file, "-"+a) })
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

// TransientSpec is a CDI spec file whose name means that the file lives as long as its owner.
type TransientSpec struct {
	File cdi.File
	ID   string // of the owner, with "_" for each "/" in it
}

// TransientSpecs returns the CDI spec files that have a name of [cdi.GenerateTransientSpecName], refused files among
// them if their kind could be read. They are in the last directory, into which CDI's libraries write: in other
// directories a name of that form means nothing.
func TransientSpecs(s *cdi.Snapshot) (list []TransientSpec) {
	last := len(s.Dirs()) - 1
	for _, f := range s.Files() {
		base := path.Base(f.Path)
		vendor, class, hasKind := strings.Cut(f.Kind, "/")
		id, ok := strings.CutPrefix(strings.TrimSuffix(base, path.Ext(base)), cdi.GenerateSpecName(vendor, class)+"_")
		if f.Priority == last && hasKind && ok && id != "" {
			list = append(list, TransientSpec{File: f, ID: id})
		}
	}
	return list
}

// Remove removes CDI spec files whose owners no longer exist, and returns their paths. It keeps a file that was written
// after it was listed, because another owner needs it. It continues after an error and joins the errors.
func Remove(host hostfs.Root, list []TransientSpec) (removed []string, err error) {
	for _, t := range list {
		if t.wasRewritten(host) {
			continue
		}
		if e := host.Remove(t.File.Path); e != nil {
			err = errors.Join(err, fmt.Errorf("remove CDI spec %q: %w", t.File.Path, e))
			continue
		}
		removed = append(removed, t.File.Path)
	}
	return removed, err
}

// wasRewritten reports whether the file was written after it was listed.
func (t *TransientSpec) wasRewritten(host hostfs.Root) bool {
	st, err := host.Stat(t.File.Path)
	return err == nil && !t.File.ModTime.IsZero() && !t.File.ModTime.Equal(time.Unix(st.Mtim.Unix()))
}

// WithoutOwner returns the CDI spec files older than before whose owner is not among the living
// ones. A driver may add to the owner's ID in a file's name.
//
// A list of UIDs says nothing of owners that are known by another form of ID, and neither does one
// of containers: drivers keep the files of all their claims ("base", "common") under such names,
// too.
func WithoutOwner(list []TransientSpec, alive []string, before time.Time) []TransientSpec {
	uids, containers, names := false, false, false
	parts := make([]string, len(alive))
	for i, id := range alive {
		id = strings.ToLower(id)
		parts[i] = strings.ReplaceAll(id, "/", "_")
		isUID, isContainer := name.IsUID(id), IsRuntimeID(id)
		uids, containers, names = uids || isUID, containers || isContainer, names || !isUID && !isContainer
	}
	var out []TransientSpec
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
