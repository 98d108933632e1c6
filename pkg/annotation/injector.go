// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// injectorDomains are the domains of the annotations of NRI's sample plugin device-injector: the
// present one takes precedence over the former one.
var injectorDomains = [...]string{"noderesource.dev", "nri.io"}

const (
	injectorDevices = "devices."
	injectorMounts  = "mounts."
	injectorCDI     = "cdi-devices."
)

// Injector is what device-injector's annotations request for one container.
type Injector struct {
	Nodes  []InjectorNode
	Mounts []InjectorMount
	// Devices are CDI devices.
	Devices []Device
}

// InjectorNode is a device node. Type and numbers are the pod author's: the caller compares them
// with the host's and never uses them.
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

// HasInjector reports whether any annotation is one of device-injector. It allocates
// nothing.
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

// ParseInjector returns what device-injector's annotations request for the container.
// Only the most specific form of an annotation applies, as in [Parse]. Unlike
// device-injector, it refuses an unknown key, a key twice, a missing
// key and a value of another type. Any error is an *Error.
func ParseInjector(annotations map[string]string, container string) (Injector, error) {
	var in Injector
	for _, part := range []struct {
		kind string
		read func(key, value string) error
	}{
		{injectorDevices, func(key, value string) error {
			return parseObjects(key, value, func(r Request, node *yaml.Node) error { return in.addNode(r, node) })
		}},
		{injectorMounts, func(key, value string) error {
			return parseObjects(key, value, func(r Request, node *yaml.Node) error { return in.addMount(r, node) })
		}},
		{injectorCDI, in.addCDI},
	} {
		for _, domain := range injectorDomains {
			key, value, ok := findEffective(annotations, part.kind+domain, container)
			if !ok {
				continue
			}
			if err := part.read(key, value); err != nil {
				return Injector{}, err
			}
			break
		}
	}
	return in, nil
}

func (in *Injector) addCDI(key, value string) error {
	var set deviceSet
	if err := parseDevices(key, value, &set); err != nil {
		return err
	}
	for _, d := range set.devices {
		if d.Kind != CDI {
			return d.newError("want a CDI name, vendor.com/class=name")
		}
	}
	in.Devices = set.devices
	return nil
}

func (in *Injector) addNode(r Request, node *yaml.Node) error {
	n := InjectorNode{Request: r}
	f := fields{r: &n.Request, key: "path", into: map[string]any{
		"path": &n.Path, "type": &n.Type, "major": &n.Major, "minor": &n.Minor, "file_mode": &n.FileMode, "uid": &n.UID, "gid": &n.GID,
	}, order: []string{"path", "type", "major", "minor", "file_mode", "uid", "gid"}, required: 4}
	if err := f.readObject(node); err != nil {
		return err
	}
	switch {
	case n.Type != "b" && n.Type != "c":
		return n.newError("type: want b or c")
	case n.Major < 0 || n.Major > 1<<32-1 || n.Minor < 0 || n.Minor > 1<<32-1:
		return n.newError("major, minor: want the numbers of a device")
	case n.FileMode != nil && *n.FileMode&^0o777 != 0:
		return n.newError("file_mode: want permission bits, at most 0777")
	}
	in.Nodes = append(in.Nodes, n)
	return nil
}

func (in *Injector) addMount(r Request, node *yaml.Node) error {
	m := InjectorMount{Request: r}
	f := fields{r: &m.Request, key: "destination", into: map[string]any{
		"source": &m.Source, "destination": &m.Destination, "type": &m.Type, "options": &m.Options,
	}, order: []string{"source", "destination", "type", "options"}, required: 2}
	if err := f.readObject(node); err != nil {
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
	if len(list.Content) > MaxItems {
		return tooManyItems(key, len(list.Content))
	}
	for i, node := range list.Content {
		r := Request{Key: key, Position: i + 1}
		if node.Kind != yaml.MappingNode || node.Anchor != "" || node.Style&yaml.TaggedStyle != 0 {
			return r.newError("want an object")
		}
		if err := read(r, node); err != nil {
			return err
		}
	}
	return nil
}

// fields decodes an object.
type fields struct {
	r        *Request
	key      string         // its value names the object in messages
	into     map[string]any // pointers, by key
	order    []string       // of the keys in messages
	required int            // number of keys, the first of order, that an object must have
}

func (f *fields) readObject(object *yaml.Node) error {
	seen := make(map[string]bool, len(f.into))
	for i := 0; i+1 < len(object.Content); i += 2 {
		name, value := object.Content[i], object.Content[i+1]
		into := f.into[name.Value]
		switch {
		case into == nil || name.Kind != yaml.ScalarNode || name.Anchor != "":
			return f.r.newError("unknown key " + quote(name.Value) + "; the keys are " + strings.Join(f.order, ", "))
		case seen[name.Value]:
			return f.r.newError("key " + quote(name.Value) + " occurs twice")
		}
		seen[name.Value] = true
		if rule := checkPlain(value); rule != "" {
			return f.r.newError(name.Value + ": " + rule)
		}
		if _, text := into.(*string); text && value.Tag != "!!str" {
			return f.r.newError(name.Value + ": want a string")
		}
		if err := value.Decode(into); err != nil {
			return f.r.newError(fmt.Sprintf("%s: found %s, which is of another type", name.Value, quote(value.Value)))
		}
		if name.Value == f.key {
			f.r.Item = value.Value
		}
	}
	for _, name := range f.order[:f.required] {
		if !seen[name] {
			return f.r.newError(name + " is missing")
		}
	}
	return nil
}

// checkPlain returns the rule that a value breaks, or "". It must be a scalar or a list of strings,
// without anchors, aliases and tags.
func checkPlain(node *yaml.Node) string {
	if node.Anchor != "" || node.Kind == yaml.AliasNode || node.Style&yaml.TaggedStyle != 0 {
		return "YAML anchors, aliases and tags are not supported"
	}
	if node.Kind == yaml.MappingNode || node.Tag == "!!null" {
		return "want a value"
	}
	for _, child := range node.Content {
		if rule := checkPlain(child); rule != "" || child.Tag != "!!str" {
			return "want a list of strings"
		}
	}
	return ""
}
