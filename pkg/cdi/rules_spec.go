// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// knownVersions are the versions of the specification that are read, oldest first.
var knownVersions = []string{"0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0"}

// requireVersion reports a value that came with a later version than the file's. what names
// it where key does not.
func (c *checker) requireVersion(since string, n *jsontree.Node, key, what string) {
	if rule := c.versionRule(since, cmp.Or(what, key)); rule != "" {
		c.report(n, key, "", rule)
	}
}

// requireVersionInLastDevice is like requireVersion, for the two fields that the CDI libraries
// check only in the last device and in the edits of the file. In another device, an older version
// is a warning, because such files are in use.
func (c *checker) requireVersionInLastDevice(since string, n *jsontree.Node, key string) {
	isEarly := c.path[0] == "devices" && c.path[1].(int) < c.devices-1
	if rule := c.versionRule(since, key); isEarly && rule != "" {
		c.addWarning(n, key, rule)
		return
	}
	c.requireVersion(since, n, key, "")
}

// versionRule returns the rule that a part breaks which came with a later version than the file's, or "".
func (c *checker) versionRule(since, what string) string {
	if c.version < 0 || c.version >= slices.Index(knownVersions, since) {
		return ""
	}
	return fmt.Sprintf("%s needs cdiVersion %s or later, the file says %s", what, since, knownVersions[c.version])
}

// requireText reports a field of an object that is missing or empty.
func (c *checker) requireText(object *jsontree.Node, key, value string) {
	n := object.Member(key)
	switch {
	case value != "":
	case n == nil:
		c.report(object, key, "", "is missing")
	case n.Kind == jsontree.Null || n.Text == "" && n.Kind == jsontree.String:
		c.reject(n, key, "must not be empty")
	}
}

// checkObject holds an object, which was decoded into value, to the rules for its type.
func (c *checker) checkObject(n *jsontree.Node, value any) {
	// A type without a case has no rules beyond the types of its fields.
	switch value := value.(type) {
	case *specs.Spec:
		c.checkSpec(n, value)
	case *specs.Device:
		c.checkDevice(n, value)
	case *specs.ContainerEdits:
		c.checkEdits(n, value)
	case *specs.DeviceNode:
		c.checkDeviceNode(n, value)
	case *specs.LinuxNetDevice:
		c.checkNetDevice(n, value)
	case *specs.Hook:
		c.checkHook(n, value)
	case *specs.Mount:
		c.checkMount(n, value)
	case *specs.IntelRdt:
		c.checkIntelRdt(n, value)
	}
}

// decodeSpec decodes a whole file. It continues after a fault, so that one run reports all faults.
func (c *checker) decodeSpec(n *jsontree.Node) *specs.Spec {
	spec := &specs.Spec{}
	if n.Kind == jsontree.Null {
		c.reject(n, "", ruleEmptyFile)
		return spec
	}
	// The rules for other fields depend on the version, wherever it stands.
	if version := n.Member("cdiVersion"); version != nil {
		c.version = slices.Index(knownVersions, strings.TrimPrefix(version.Text, "v"))
	}
	c.devices = countEntries(n.Member("devices"))
	c.decode(n, reflect.ValueOf(spec).Elem())
	return spec
}

// checkSpec checks the rules for the file as a whole. A version can begin with "v".
func (c *checker) checkSpec(n *jsontree.Node, spec *specs.Spec) {
	c.requireText(n, "cdiVersion", spec.Version)
	if spec.Version != "" && c.version < 0 {
		c.reject(n.Member("cdiVersion"), "cdiVersion", unknownVersion(spec.Version))
	}
	spec.Version = strings.TrimPrefix(spec.Version, "v")
	c.requireText(n, "kind", spec.Kind)
	c.kind = spec.Kind
	if spec.Kind != "" {
		if err := checkKind(spec.Kind); err != nil {
			c.reject(n.Member("kind"), "kind", err.Error())
		} else if strings.Contains(spec.Kind[strings.IndexByte(spec.Kind, '/'):], ".") {
			c.requireVersion("0.6.0", n.Member("kind"), "kind", "a dot in the class")
		}
	}
	devices := n.Member("devices")
	if c.devices == 0 {
		c.report(cmp.Or(devices, n), "devices", "", "must have at least one device")
	}
	c.refuseSame(devices, "devices", "name", "another device of the file has this name")
}

// unknownVersion returns the rule that a version breaks.
func unknownVersion(version string) string {
	rule := "must be one of " + strings.Join(knownVersions, ", ")
	if newest := knownVersions[len(knownVersions)-1]; slices.Compare(versionNumbers(version), versionNumbers(newest)) > 0 {
		rule = "is newer than this version of Jackfield, which reads CDI up to " + newest +
			": update Jackfield, or set an earlier cdiVersion if the file needs no more; " + rule
	}
	return rule
}

// versionNumbers returns the numbers of a version such as "v1.2.0", nil for another text.
func versionNumbers(version string) []int {
	n := make([]int, 3)
	if count, _ := fmt.Sscanf(strings.TrimPrefix(version, "v"), "%d.%d.%d", &n[0], &n[1], &n[2]); count < 2 {
		return nil
	}
	return n
}

// refuseSame reports each entry of the list key whose field has the text of an earlier entry's field.
func (c *checker) refuseSame(list *jsontree.Node, key, field, rule string) {
	if list == nil {
		return
	}
	seen := map[string]bool{}
	c.within(key, func() {
		c.forEach(list, func(_ int, entry *jsontree.Node) {
			n := entry.Member(field)
			if n == nil || n.Text == "" {
				return
			}
			if seen[n.Text] {
				c.reject(n, field, rule)
			}
			seen[n.Text] = true
		})
	})
}

// decodeAnnotations decodes annotations, which the current path names.
func (c *checker) decodeAnnotations(n *jsontree.Node) map[string]string {
	if n.Kind != jsontree.Object {
		c.reject(n, "", "must be an object of strings")
		return nil
	}
	out := make(map[string]string, len(n.Children))
	bytes := 0
	for _, child := range n.Children {
		if err := validateAnnotationKey(child.Key); err != nil {
			c.report(child, "", diag.Quote(child.Key), "an annotation's key: "+err.Error())
		}
		if _, twice := out[child.Key]; twice {
			c.report(child, child.Key, "", "duplicate key")
		}
		value := ""
		if isPresent(child) {
			c.within(plainKey(child.Key), func() { value = c.decodeString(child) })
		}
		out[strings.Clone(child.Key)] = value
		bytes += len(child.Key) + len(value)
	}
	if bytes > maxAnnotationBytes {
		c.report(n, "", fmt.Sprintf("%d bytes", bytes), fmt.Sprintf("at most %d are allowed", maxAnnotationBytes))
	}
	if len(out) > 0 {
		c.requireVersion("0.6.0", n, "", "annotations")
	}
	return out
}

// checkDevice checks a device. A device without an edit is a fault, as it is upstream.
func (c *checker) checkDevice(n *jsontree.Node, d *specs.Device) {
	c.names = append(c.names, d.Name)
	c.requireText(n, "name", d.Name)
	if d.Name != "" {
		if err := checkName(d.Name); err != nil {
			c.reject(n.Member("name"), "name", err.Error())
		} else if '0' <= d.Name[0] && d.Name[0] <= '9' {
			c.requireVersion("0.5.0", n.Member("name"), "name", "a name that begins with a digit")
		}
	}
	edits := n.Member("containerEdits")
	known := fieldNames[reflect.TypeFor[specs.ContainerEdits]()]
	isEdit := func(field *jsontree.Node) bool { return slices.Contains(known, field.Key) && countEntries(field) > 0 }
	if !isPresent(edits) || edits.Kind == jsontree.Object && !slices.ContainsFunc(edits.Children, isEdit) {
		c.report(n, "containerEdits", "", "must have at least one edit")
	}
}
