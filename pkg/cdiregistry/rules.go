// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"slices"
	"strings"
)

// The fields of each object, in the order of the specification.
var (
	specFields   = []string{"cdiVersion", "kind", "annotations", "devices", "containerEdits"}
	deviceFields = []string{"name", "annotations", "containerEdits"}
	editFields   = []string{"env", "deviceNodes", "netDevices", "hooks", "mounts", "intelRdt", "additionalGids"}
	nodeFields   = []string{"path", "hostPath", "type", "major", "minor", "fileMode", "permissions", "uid", "gid"}
	netFields    = []string{"hostInterfaceName", "name"}
	hookFields   = []string{"hookName", "path", "args", "env", "timeout"}
	mountFields  = []string{"hostPath", "containerPath", "options", "type"}
	rdtFields    = []string{"closID", "l3CacheSchema", "memBwSchema", "schemata", "enableMonitoring"}
	hookNames    = []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"}
)

// knownVersions are the versions of the specification that are read, oldest first.
var knownVersions = []string{"0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"}

// Indexes of knownVersions that brought a field.
const (
	v040 = 1
	v050 = 2
	v060 = 3
	v070 = 4
	v110 = 7
)

// need records that what is at node i came with a later version than the file's;
// what is said of it when it is not the key.
func (c *checker) need(v int, i int32, key, what string) {
	if c.version >= 0 && c.version < v {
		c.missing(i, key, c.tooOld(v, key, what))
	}
}

// needLax is need for the two fields that the CDI libraries look for in the last
// device only (and in the edits of the file): files with them in another device
// are in use, and are warned of.
func (c *checker) needLax(v int, i int32, key string) {
	switch {
	case c.version < 0 || c.version >= v:
	case !c.early:
		c.need(v, i, key, "")
	default:
		c.warn(i, key, c.tooOld(v, key, ""))
	}
}

// warn says something of a field that does not refuse the file.
func (c *checker) warn(i int32, key, rule string) {
	if len(c.warnings) < maxDiagnostics {
		d := Diagnostic{Severity: SeverityWarning, Field: c.field(key), Rule: rule}
		d.Line, d.Column = c.d.place(c.at(i))
		c.warnings = append(c.warnings, d)
	}
}

func (c *checker) tooOld(v int, key, what string) string {
	if what == "" {
		what = key
	}
	return fmt.Sprintf("%s needs cdiVersion %s or later, the file says %s", what, knownVersions[v], knownVersions[c.version])
}

func (c *checker) spec() {
	var f [5]int32
	if c.at(0).kind == kindNull {
		c.bad(0, "", "an empty file; a CDI spec is wanted")
		return
	}
	if !c.object(0, specFields, f[:]) {
		return
	}
	c.cdiVersion(f[0])
	c.w.byte(byte(max(c.version, 0)))
	c.kind = c.required(0, f[1], "kind")
	if c.kind != "" {
		if err := checkKind(c.kind); err != nil {
			c.bad(f[1], "kind", err.Error())
		} else if strings.Contains(c.kind[strings.IndexByte(c.kind, '/'):], ".") {
			c.need(v060, f[1], "kind", "a dot in the class")
		}
	}
	c.w.str(c.kind)
	c.annotations(f[2])
	c.edits(f[4])
	n := c.items(f[3], "devices", func(i int32) {
		c.early = c.at(i).next != none
		c.device(i)
	})
	if n == 0 && (!c.present(f[3]) || c.at(f[3]).kind == kindArray) {
		c.missing(max(f[3], 0), "devices", "must have at least one device")
	}
}

func (c *checker) cdiVersion(i int32) {
	s := c.required(0, i, "cdiVersion")
	if s == "" {
		return
	}
	v := slices.Index(knownVersions, strings.TrimPrefix(s, "v"))
	if v < 0 {
		c.bad(i, "cdiVersion", "must be one of "+strings.Join(knownVersions, ", "))
		return
	}
	c.version = v
}

func (c *checker) annotations(i int32) {
	if !c.present(i) {
		c.w.uint(0)
		return
	}
	n := c.at(i)
	if n.kind != kindObject {
		c.bad(i, "annotations", "must be an object of strings")
		return
	}
	c.push("annotations")
	c.notes = c.notes[:0]
	size := 0
	for j := n.first; j != none; j = c.at(j).next {
		key := c.d.str(c.at(j).key)
		if err := checkAnnotationKey(key); err != nil {
			c.report(j, "", quote(key), "an annotation's key: "+err.Error())
		}
		value := c.str(j, key)
		c.notes = append(c.notes, note{key, value, j})
		size += len(key) + len(value)
	}
	slices.SortStableFunc(c.notes, func(a, b note) int { return strings.Compare(a.key, b.key) })
	c.w.uint(uint64(len(c.notes)))
	for i, a := range c.notes {
		if i > 0 && c.notes[i-1].key == a.key {
			c.report(a.i, a.key, "", "the key is there twice")
		}
		c.w.str(a.key)
		c.w.str(a.value)
	}
	c.pop()
	if size > maxAnnotationBytes {
		c.report(i, "annotations", fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d are allowed", maxAnnotationBytes))
	}
	if len(c.notes) > 0 {
		c.need(v060, i, "annotations", "")
	}
}

// note is an annotation, at node i.
type note struct {
	key, value string
	i          int32
}

func (c *checker) device(i int32) {
	var f [3]int32
	if !c.object(i, deviceFields, f[:]) {
		return
	}
	name := c.required(i, f[0], "name")
	if name != "" {
		if err := checkName(name); err != nil {
			c.bad(f[0], "name", err.Error())
		} else if '0' <= name[0] && name[0] <= '9' {
			c.need(v050, f[0], "name", "a name that begins with a digit")
		}
		if !c.seen.add(name) {
			c.bad(f[0], "name", "a device of this name is in the file already")
		}
	}
	c.names = append(c.names, name)
	c.w.device(name)
	c.annotations(f[1])
	if c.edits(f[2]) {
		c.missing(i, "containerEdits", "must have at least one edit")
	}
}
