// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
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

// Indexes of the knownVersions that brought a field.
const (
	v040 = 1
	v050 = 2
	v060 = 3
	v070 = 4
	v110 = 7
)

// requireVersion reports a value that came with a later version than the file's. what names
// it where key does not.
func (c *checker) requireVersion(v int, n *jsontree.Node, key, what string) {
	if c.isTooOldFor(v) {
		c.rejectMissing(n, key, c.versionRule(v, key, what))
	}
}

// requireVersionInLastDevice is requireVersion for the two fields that the CDI libraries
// check in the last device only (and in the edits of the file). Files with them in another
// device are in use, and get a warning.
func (c *checker) requireVersionInLastDevice(v int, n *jsontree.Node, key string) {
	switch {
	case !c.isTooOldFor(v):
	case c.early:
		c.addWarning(n, key, c.versionRule(v, key, ""))
	default:
		c.requireVersion(v, n, key, "")
	}
}

func (c *checker) isTooOldFor(v int) bool { return c.version >= 0 && c.version < v }

func (c *checker) versionRule(v int, key, what string) string {
	if what == "" {
		what = key
	}
	return fmt.Sprintf("%s needs cdiVersion %s or later, the file says %s", what, knownVersions[v], knownVersions[c.version])
}

func (c *checker) decodeSpec(n *jsontree.Node) *specs.Spec {
	spec := &specs.Spec{}
	if n.Kind == jsontree.Null {
		c.reject(n, "", ruleEmptyFile)
		return spec
	}
	var f [5]*jsontree.Node
	if !c.members(n, specFields, f[:]) {
		return spec
	}
	spec.Version = c.decodeVersion(n, f[0])
	spec.Kind = c.decodeRequired(n, f[1], "kind")
	c.kind = spec.Kind
	if spec.Kind != "" {
		if err := checkKind(spec.Kind); err != nil {
			c.reject(f[1], "kind", err.Error())
		} else if strings.Contains(spec.Kind[strings.IndexByte(spec.Kind, '/'):], ".") {
			c.requireVersion(v060, f[1], "kind", "a dot in the class")
		}
	}
	spec.Annotations = c.decodeAnnotations(f[2])
	spec.ContainerEdits, _ = c.decodeEdits(f[4])
	devices := 0
	seen := map[string]bool{}
	spec.Devices = decodeList(c, f[3], "devices", func(child *jsontree.Node) specs.Device {
		devices++
		c.early = devices < len(f[3].Children)
		return c.decodeDevice(child, seen)
	})
	if countEntries(f[3]) == 0 {
		at := n
		if f[3] != nil {
			at = f[3]
		}
		c.rejectMissing(at, "devices", "must have at least one device")
	}
	return spec
}

// decodeVersion returns the version without a leading "v".
func (c *checker) decodeVersion(spec, n *jsontree.Node) string {
	s := c.decodeRequired(spec, n, "cdiVersion")
	if s == "" {
		return ""
	}
	c.version = slices.Index(knownVersions, strings.TrimPrefix(s, "v"))
	if c.version < 0 {
		c.reject(n, "cdiVersion", "must be one of "+strings.Join(knownVersions, ", "))
	}
	return strings.TrimPrefix(s, "v")
}

func (c *checker) decodeAnnotations(n *jsontree.Node) map[string]string {
	if !isPresent(n) {
		return nil
	}
	if n.Kind != jsontree.Object {
		c.reject(n, "annotations", "must be an object of strings")
		return nil
	}
	if len(n.Children) == 0 {
		return nil
	}
	c.pushField("annotations")
	out := make(map[string]string, len(n.Children))
	bytes := 0
	for _, child := range n.Children {
		if err := ValidateAnnotationKey(child.Key); err != nil {
			c.report(child, "", diag.Quote(child.Key, diag.Most), "an annotation's key: "+err.Error())
		}
		if _, twice := out[child.Key]; twice {
			c.report(child, child.Key, "", "duplicate key")
		}
		value := c.decodeString(child, child.Key)
		out[strings.Clone(child.Key)] = value
		bytes += len(child.Key) + len(value)
	}
	c.popField()
	if bytes > maxAnnotationBytes {
		c.report(n, "annotations", fmt.Sprintf("%d bytes", bytes), fmt.Sprintf("at most %d are allowed", maxAnnotationBytes))
	}
	c.requireVersion(v060, n, "annotations", "")
	return out
}

// decodeDevice decodes a device; seen are the names of those before it.
func (c *checker) decodeDevice(n *jsontree.Node, seen map[string]bool) specs.Device {
	var (
		f      [3]*jsontree.Node
		device specs.Device
		empty  bool
	)
	if !c.members(n, deviceFields, f[:]) {
		return device
	}
	device.Name = c.decodeRequired(n, f[0], "name")
	if device.Name != "" {
		if err := checkName(device.Name); err != nil {
			c.reject(f[0], "name", err.Error())
		} else if '0' <= device.Name[0] && device.Name[0] <= '9' {
			c.requireVersion(v050, f[0], "name", "a name that begins with a digit")
		}
		if seen[device.Name] {
			c.reject(f[0], "name", "another device of the file has this name")
		}
		seen[device.Name] = true
	}
	c.names = append(c.names, device.Name)
	device.Annotations = c.decodeAnnotations(f[1])
	if device.ContainerEdits, empty = c.decodeEdits(f[2]); empty {
		c.rejectMissing(n, "containerEdits", "must have at least one edit")
	}
	return device
}
