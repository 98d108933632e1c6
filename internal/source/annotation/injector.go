// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"math"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
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
	if err := checkName(annotations, container); err != nil {
		return Injector{}, err
	}
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

func (in *Injector) addNode(r Request, node *jsontree.Node) error {
	n := InjectorNode{Request: r}
	d := schema.NewDecoder("")
	const device, user, group = "must be a device number" + in32Bits, "must be a user ID" + in32Bits,
		"must be a group ID" + in32Bits
	if err := n.readObject(d, node, []string{"path", "type", "major", "minor"},
		schema.Key("path", d.Text(&n.Path, n.setItem)),
		schema.Key("type", d.Text(&n.Type, isDeviceType)),
		schema.Key("major", integer(d, device, func(major uint32) { n.Major = int64(major) })),
		schema.Key("minor", integer(d, device, func(minor uint32) { n.Minor = int64(minor) })),
		schema.Key("file_mode", integer(d, rulePermissions, func(mode uint32) { n.FileMode = &mode })),
		schema.Key("uid", integer(d, user, func(uid uint32) { n.UID = &uid })),
		schema.Key("gid", integer(d, group, func(gid uint32) { n.GID = &gid })),
	); err != nil {
		return err
	}
	if n.FileMode != nil {
		// Authors copy the mode from stat(2), including the file type bits, which OCI runtimes
		// drop.
		if typeBits := *n.FileMode & unix.S_IFMT; typeBits == map[string]uint32{"b": unix.S_IFBLK,
			"c": unix.S_IFCHR}[n.Type] {
			*n.FileMode &^= unix.S_IFMT
		}
		if *n.FileMode&^0o777 != 0 {
			return n.newError("file_mode: " + rulePermissions)
		}
	}
	in.Nodes = append(in.Nodes, n)
	return nil
}

const (
	in32Bits        = ", 0 to 4294967295"
	rulePermissions = "must be permission bits, at most 0777"
)

func isDeviceType(s string) string {
	if s != "b" && s != "c" {
		return "must be b or c"
	}
	return ""
}

// integer reads an integer in any notation of YAML, because modes are octal.
func integer(d *schema.Decoder, rule string, set func(uint32)) schema.Reader {
	return func(field string, value *jsontree.Node) {
		v, ok := schema.ParseInteger(value.Text)
		if value.Kind != jsontree.Number || !ok || v < 0 || v > math.MaxUint32 {
			d.AddFault(field, value, schema.Describe(value), rule)
			return
		}
		set(uint32(v))
	}
}

func (in *Injector) addMount(r Request, node *jsontree.Node) error {
	m := InjectorMount{Request: r}
	d := schema.NewDecoder("")
	anyText := func(string) string { return "" }
	if err := m.readObject(d, node, []string{"destination", "source"},
		schema.Key("destination", d.Text(&m.Destination, m.setItem)),
		schema.Key("source", d.Text(&m.Source, anyText)),
		schema.Key("type", d.Text(&m.Type, anyText)),
		schema.Key("options", schema.OrEmpty(schema.Items(d, &m.Options,
			func(at string, value *jsontree.Node, option *string) { d.Text(option, anyText)(at, value) }))),
	); err != nil {
		return err
	}
	in.Mounts = append(in.Mounts, m)
	return nil
}

// parseObjects calls read for each object of a list.
func parseObjects(key, value string, read func(Request, *jsontree.Node) error) error {
	value, err := checkValue(key, value)
	if err != nil || value == "" {
		return err
	}
	list, err := parseList(key, value)
	if err != nil {
		return err
	}
	for i, node := range list {
		if err := read(Request{Key: key, Position: i + 1}, node); err != nil {
			return err
		}
	}
	return nil
}

// setItem takes the value by which messages identify an object. It accepts any.
func (r *Request) setItem(text string) string {
	r.Item = text
	return ""
}

// readObject decodes an object, which has the required keys.
func (r *Request) readObject(d *schema.Decoder, object *jsontree.Node, required []string,
	members ...schema.Member) error {
	d.ReadObject("", object, members...)
	for _, key := range required {
		if d.Fields[key] == nil {
			d.AddFault("", object, "", key+" is missing")
		}
	}
	return r.firstFault(d)
}
