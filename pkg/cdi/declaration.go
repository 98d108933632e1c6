// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

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

// firstName returns the declarations at the start of a list that have the same name.
func firstName(list []declaration) []declaration {
	if n := slices.IndexFunc(list, func(d declaration) bool { return d.name != list[0].name }); n > 0 {
		return list[:n]
	}
	return list
}

// isConflict reports whether several files of the highest priority have the declarations of one name.
func isConflict(found []declaration) bool {
	return len(found) > 1 && found[0].file.dir.priority == found[1].file.dir.priority
}

// device returns a copy that shares nothing with the registry.
func (d declaration) device() *Device {
	spec := d.file.spec
	declared := &spec.Devices[d.index]
	return &Device{
		Name: d.name, Kind: spec.Kind, File: d.file.hostPath(), Index: d.index,
		Priority: d.file.dir.priority, CDIVersion: spec.Version,
		Annotations: maps.Clone(declared.Annotations), SpecAnnotations: maps.Clone(spec.Annotations),
		SpecEdits: copyEdits(&spec.ContainerEdits), Edits: copyEdits(&declared.ContainerEdits),
	}
}
