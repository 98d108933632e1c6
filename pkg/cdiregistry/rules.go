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

// need records that what is at node i came with a later version than the file's.
func (c *checker) need(v int, i int32, key, what string) {
	if c.version >= 0 && c.version < v {
		c.missing(i, key, fmt.Sprintf("%s needs cdiVersion %s or later, the file says %s",
			what, knownVersions[v], knownVersions[c.version]))
	}
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
	n := c.items(f[3], "devices", c.device)
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
	notes := make(map[string]string, n.count)
	size := 0
	for j := n.first; j != none; j = c.at(j).next {
		key := c.at(j).key
		if _, twice := notes[key]; twice {
			c.report(j, key, "", "the key is there twice")
		}
		if err := checkAnnotationKey(key); err != nil {
			c.report(j, "", quote(key), "an annotation's key: "+err.Error())
		}
		notes[key] = c.str(j, key)
		size += len(key) + len(notes[key])
	}
	c.pop()
	if size > maxAnnotationBytes {
		c.report(i, "annotations", fmt.Sprintf("%d bytes", size), fmt.Sprintf("at most %d are allowed", maxAnnotationBytes))
	}
	if len(notes) > 0 {
		c.need(v060, i, "annotations", "it")
	}
	c.w.sortedNotes(notes)
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
