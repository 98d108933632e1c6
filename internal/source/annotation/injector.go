// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// injectorDomains are the annotation domains of NRI's sample plugin device-injector, the current
// one and the former one.
var injectorDomains = [...]string{"noderesource.dev", "nri.io"}

const (
	injectorDevices = "devices."
	injectorMounts  = "mounts."
	injectorCDI     = "cdi-devices."
)

// Injector holds the requests of device-injector's annotations for one container.
type Injector struct {
	Nodes  []InjectorNode
	Mounts []InjectorMount
	// Devices are CDI devices.
	Devices []Device
}

// InjectorNode is a device node. The pod's author chose type and numbers, so the caller only
// compares them with the host's.
type InjectorNode struct {
	Request
	Path         string
	Type         string // b or c
	Major, Minor int64
	FileMode     *uint32 // permission bits
	UID, GID     *uint32
}

// InjectorMount is a mount.
type InjectorMount struct {
	Request
	Source, Destination, Type string
	Options                   []string
}

// HasInjector reports whether any annotation belongs to device-injector. It does not allocate,
// because it runs for every container.
func HasInjector(annotations map[string]string) bool {
	for key := range annotations {
		if isInjectorKey(key) {
			return true
		}
	}
	return false
}

func isInjectorKey(key string) bool {
	base, _, _ := strings.Cut(key, "/")
	for _, domain := range injectorDomains {
		kind, ok := strings.CutSuffix(base, domain)
		if ok && (kind == injectorDevices || kind == injectorMounts || kind == injectorCDI) {
			return true
		}
	}
	return false
}

// ParseInjector returns the requests of device-injector's annotations for the container. Only the
// most specific form of an annotation applies, like in [Parse]. Unlike device-injector, it rejects
// unknown, duplicate and missing keys, and values of a wrong type. Every error is an *Error.
func ParseInjector(annotations map[string]string, container string) (Injector, error) {
	var in Injector
	for _, kind := range []string{injectorDevices, injectorMounts, injectorCDI} {
		key, value, ok := findInjector(annotations, kind, container)
		if !ok {
			continue
		}
		if err := in.parse(kind, key, value); err != nil {
			return Injector{}, err
		}
	}
	return in, nil
}

// findInjector returns the annotation of one kind that applies to the container. Like in
// device-injector, the most specific form counts, regardless of its domain. Of two equally specific
// forms, the current domain counts.
func findInjector(annotations map[string]string, kind, container string) (key, value string, ok bool) {
	for _, scope := range scopes(container) {
		for _, domain := range injectorDomains {
			key = kind + domain + scope
			if value, ok = annotations[key]; ok {
				return key, value, true
			}
		}
	}
	return "", "", false
}

func (in *Injector) parse(kind, key, value string) error {
	switch kind {
	case injectorDevices:
		return parseObjects(key, value, in.addNode)
	case injectorMounts:
		return parseObjects(key, value, in.addMount)
	}
	return in.addCDI(key, value)
}

func (in *Injector) addCDI(key, value string) error {
	var set deviceSet
	if err := parseDevices(key, value, &set); err != nil {
		return err
	}
	for _, d := range set.devices {
		if d.Kind != CDI {
			return d.newError("must be a CDI name, vendor.com/class=name")
		}
	}
	in.Devices = set.devices
	return nil
}

func (in *Injector) addNode(r Request, node *yaml.Node) error {
	n := InjectorNode{Request: r}
	if err := n.readObject(node, 4, []field{
		{"path", &n.Path}, {"type", &n.Type}, {"major", &n.Major}, {"minor", &n.Minor}, {"file_mode", &n.FileMode},
		{"uid", &n.UID}, {"gid", &n.GID},
	}); err != nil {
		return err
	}
	switch {
	case n.Type != "b" && n.Type != "c":
		return n.newError("type: must be b or c")
	case n.Major < 0 || n.Major > 1<<32-1 || n.Minor < 0 || n.Minor > 1<<32-1:
		return n.newError("major, minor: must be the numbers of a device")
	}
	if n.FileMode != nil {
		// Authors copy the mode from stat(2), including the file type bits, which OCI runtimes
		// drop.
		if typeBits := *n.FileMode & unix.S_IFMT; typeBits == map[string]uint32{"b": unix.S_IFBLK,
			"c": unix.S_IFCHR}[n.Type] {
			n.FileMode = new(*n.FileMode &^ unix.S_IFMT)
		}
		if *n.FileMode&^0o777 != 0 {
			return n.newError("file_mode: must be permission bits, at most 0777")
		}
	}
	in.Nodes = append(in.Nodes, n)
	return nil
}

func (in *Injector) addMount(r Request, node *yaml.Node) error {
	m := InjectorMount{Request: r}
	if err := m.readObject(node, 2, []field{
		{"destination", &m.Destination}, {"source", &m.Source}, {"type", &m.Type}, {"options", &m.Options},
	}); err != nil {
		return err
	}
	in.Mounts = append(in.Mounts, m)
	return nil
}

// parseObjects calls read for each object of a list.
func parseObjects(key, value string, read func(Request, *yaml.Node) error) error {
	value, err := checkValue(key, value)
	if err != nil || value == "" {
		return err
	}
	list, err := parseList(key, value)
	if err != nil {
		return err
	}
	for i, node := range list {
		r := Request{Key: key, Position: i + 1}
		if node.Kind != yaml.MappingNode || isMarked(node) {
			return r.newError("must be an object")
		}
		if err := read(r, node); err != nil {
			return err
		}
	}
	return nil
}

// field is a key of an object, with a pointer to the destination of its value.
type field struct {
	name string
	into any
}

// readObject decodes an object, of which the first fields are required. Messages identify the
// object by the value of the first field.
func (r *Request) readObject(object *yaml.Node, required int, fields []field) error {
	keys := make([]string, len(fields))
	for i, f := range fields {
		keys[i] = f.name
	}
	seen, err := r.readMembers(object, keys, func(key string, value *yaml.Node) error {
		if rule := checkPlain(value); rule != "" {
			return r.newError(key + ": " + rule)
		}
		at := slices.Index(keys, key)
		if _, text := fields[at].into.(*string); text && value.Tag != "!!str" {
			return r.newError(key + ": must be a string")
		}
		if err := value.Decode(fields[at].into); err != nil {
			return r.newError(fmt.Sprintf("%s: found %s, which is of another type", key, diag.Quote(value.Value)))
		}
		if at == 0 {
			r.Item = value.Value
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, key := range keys[:required] {
		if !seen[key] {
			return r.newError(key + " is missing")
		}
	}
	return nil
}

// checkPlain returns the rule that a value breaks, or "". It must be a scalar or a list of strings,
// without anchors, aliases and tags.
func checkPlain(node *yaml.Node) string {
	if node.Kind == yaml.AliasNode || isMarked(node) {
		return ruleNoAnchors
	}
	if node.Kind == yaml.MappingNode || node.Tag == "!!null" {
		return "must have a value"
	}
	for _, child := range node.Content {
		if rule := checkPlain(child); rule != "" || child.Tag != "!!str" {
			return "must be a list of strings"
		}
	}
	return ""
}
