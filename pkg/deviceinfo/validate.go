// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// validator applies the rules of §3 to a parsed source and collects the findings. Its
// result is valid only without faults.
type validator struct {
	source, file     string
	opts             marshalOptions
	faults, warnings FieldErrors
}

// addFault adds a diagnostic whose Section is a number.
func (v *validator) addFault(d FieldError) {
	d.File, d.Section = v.file, inSection(d.Section)
	v.faults = append(v.faults, &d)
}

func (v *validator) addWarning(d FieldError) {
	d.File, d.Section, d.Warning = v.file, inSection(d.Section), true
	v.warnings = append(v.warnings, &d)
}

func (v *validator) validateInfo(n *jsontree.Node, path string) *Info {
	info := &Info{}
	o, ok := v.object(n, path, "3.1", "type", "version", "pci", "vdpa", "vhost-user", "memif")
	if !ok {
		return info
	}
	types := []string{string(TypePCI), string(TypeVDPA), string(TypeVhostUser), string(TypeMemif)}
	info.Type = Type(o.readEnum("type", "3.1.1", types...))
	if o.findMember("type") == nil {
		o.hintType(types)
	}
	info.Version = o.readText("version", true, "3.1.2", `the version of the specification, "1.1.0" or "1.0.0"`,
		checkVersion)
	o.warnOfVersion(info.Version)

	if m, ok := o.findMap(TypePCI, "3.1.3", "pci-address", "vhost-net", "rdma-device", "pf-pci-address",
		"representor-device"); ok {
		info.PCI = m.readPCI()
	}
	if m, ok := o.findMap(TypeVDPA, "3.1.4", "parent-device", "driver", "path", "pci-address", "pf-pci-address",
		"representor-device"); ok {
		info.VDPA = m.readVDPA()
	}
	if m, ok := o.findMap(TypeVhostUser, "3.1.5", "mode", "path"); ok {
		info.VhostUser = m.readVhostUser()
	}
	if m, ok := o.findMap(TypeMemif, "3.1.6", "role", "path", "mode"); ok {
		info.Memif = m.readMemif()
	}
	if info.Type != "" && o.findMember(string(info.Type)) == nil {
		section := map[Type]string{TypePCI: "3.1.3", TypeVDPA: "3.1.4", TypeVhostUser: "3.1.5", TypeMemif: "3.1.6"}[info.Type]
		o.reportMissing(string(info.Type), o.findMember("type"), section,
			fmt.Sprintf("an object, because \"type\" is %q", info.Type))
	}
	info.Extra = o.unknownMembers()
	return info
}

// hintType completes the fault that "type" is missing, if there is exactly one type's map.
func (o object) hintType(types []string) {
	present := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return o.findMember(t) == nil })
	if len(present) == 1 {
		o.faults[len(o.faults)-1].Hint = fmt.Sprintf("add \"type\": %q", present[0])
	}
}

// warnOfVersion warns of a version that this package does not know, and of keys that the
// version does not have.
func (o object) warnOfVersion(version string) {
	n := o.findMember("version")
	switch {
	case version == "" || n == nil || version == Version:
		return
	case version != version100:
		o.addWarning(FieldError{Line: n.Line, Column: n.Column, Field: joinPath(o.path, "version"), Found: o.sourceOf(n),
			Rule: `should be "1.1.0" or "1.0.0"`, Section: "3.1.2",
			Hint: "it is read as 1.1.0; keys that a later version added have no effect"})
		return
	}
	for t, section := range map[string]string{"pci": "3.1.3.5", "vdpa": "3.1.4.6"} {
		const key = "representor-device"
		if m := o.findMember(t).Member(key); m != nil {
			o.addWarning(FieldError{Line: m.KeyLine, Column: m.KeyColumn, Field: joinPath(joinPath(o.path, t), key),
				Found: quoteKey(key),
				Rule:  `needs "version" to be "1.1.0"`, Section: section, Hint: "1.0.0 does not have the key"})
		}
	}
}

func (o object) readPCI() *PCI {
	return &PCI{
		PCIAddress: o.readPCIAddress("pci-address", true, "3.1.3.1"),
		VhostNet: o.readText("vhost-net", false, "3.1.3.2", "the absolute path of the vhost-net character device",
			checkPath),
		RDMADevice:        o.readText("rdma-device", false, "3.1.3.3", "the name of an RDMA device", checkNames),
		PFPCIAddress:      o.readPCIAddress("pf-pci-address", false, "3.1.3.4"),
		RepresentorDevice: o.readText("representor-device", false, "3.1.3.5", "the name of a network device", checkNetdev),
		Extra:             o.unknownMembers(),
	}
}

func (o object) readVDPA() *VDPA {
	d := &VDPA{
		ParentDevice: o.readText("parent-device", true, "3.1.4.1", "the name of a device in /sys/bus/vdpa/devices",
			checkName),
		Driver: VDPADriver(o.readEnum("driver", "3.1.4.2", string(VDPAVhost), string(VDPAVirtio))),
	}
	const rule = "the absolute path of the vhost or virtio device"
	optional := d.Driver == VDPAVirtio && !o.opts.requireVDPAPath
	d.Path = o.readText("path", !optional, "3.1.4.3", rule, checkPath)
	if optional && o.findMember("path") == nil {
		o.addWarning(FieldError{Line: o.node.Line, Column: o.node.Column, Field: joinPath(o.path, "path"),
			Rule: "missing; should be " + rule, Section: "3.1.4.3",
			Hint: "accepted, because the virtio driver does not use the path"})
	}
	d.PCIAddress = o.readPCIAddress("pci-address", false, "3.1.4.4")
	d.PFPCIAddress = o.readPCIAddress("pf-pci-address", false, "3.1.4.5")
	d.RepresentorDevice = o.readText("representor-device", false, "3.1.4.6", "the name of a network device", checkNetdev)
	d.Extra = o.unknownMembers()
	return d
}

func (o object) readVhostUser() *VhostUser {
	return &VhostUser{
		Mode: VhostUserMode(o.readEnum("mode", "3.1.5.1", string(VhostUserClient), string(VhostUserServer))),
		Path: o.readText("path", true, "3.1.5.2", "the absolute path of the vhost-user socket, at most 107 bytes",
			checkSocket),
		Extra: o.unknownMembers(),
	}
}

func (o object) readMemif() *Memif {
	return &Memif{
		Role: MemifRole(o.readEnum("role", "3.1.6.1", string(MemifMaster), string(MemifSlave))),
		Path: o.readText("path", true, "3.1.6.2",
			`the absolute path of the memif socket, or "@" and an abstract name, at most 107 bytes`, checkMemifSocket),
		Mode:  MemifMode(o.readEnum("mode", "3.1.6.3", string(MemifEthernet), string(MemifIP), string(MemifInjectPunt))),
		Extra: o.unknownMembers(),
	}
}

// object is a JSON object with the keys that the specification knows in it.
type object struct {
	*validator
	node  *jsontree.Node
	path  string
	known []string
}

// object checks that n is an object, and the case of its keys; ok is false for another
// type.
func (v *validator) object(n *jsontree.Node, path, section string, known ...string) (o object, ok bool) {
	o = object{validator: v, node: n, path: path, known: known}
	if n.Kind != jsontree.Object {
		v.reportType(n, path, "an object", section)
		return o, false
	}
	for _, m := range n.Children {
		i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(m.Key, k) })
		if i >= 0 && !slices.Contains(known, m.Key) {
			v.addFault(FieldError{Line: m.KeyLine, Column: m.KeyColumn, Field: joinPath(path, m.Key), Found: quoteKey(m.Key),
				Rule: fmt.Sprintf("must be the key %q", known[i]), Section: section, Hint: "keys are in lower case"})
		}
	}
	return o, true
}

// findMap returns the map of a type; ok is false where there is none.
func (o object) findMap(t Type, section string, known ...string) (m object, ok bool) {
	n := o.findMember(string(t))
	if n == nil {
		return m, false
	}
	return o.object(n, joinPath(o.path, string(t)), section, known...)
}

// findMember returns the value of a key, or nil. A key in the wrong case, which is reported
// already, counts.
func (o object) findMember(key string) *jsontree.Node {
	for _, m := range o.node.Children {
		if strings.EqualFold(m.Key, key) {
			return m
		}
	}
	return nil
}

// readText returns the value of a key of type string, or "" for a missing or wrong value. rule
// is a noun phrase for the value, and check returns a hint for a wrong value.
func (o object) readText(key string, required bool, section, rule string,
	check func(string) (hint string, ok bool)) string {
	n := o.findMember(key)
	if n == nil {
		if required {
			o.reportMissing(key, o.node, section, rule)
		}
		return ""
	}
	if n.Kind != jsontree.String {
		o.reportType(n, joinPath(o.path, key), rule, section)
		return ""
	}
	hint, ok := check(n.Text)
	if ok {
		return n.Text
	}
	if n.Text == "" && !required {
		hint = "omit the key where it does not apply"
	}
	o.addFault(FieldError{Line: n.Line, Column: n.Column, Field: joinPath(o.path, key), Found: o.sourceOf(n),
		Rule: "must be " + rule, Section: section, Hint: hint})
	return ""
}

// readEnum returns the value of a required key that has one of a few values.
func (o object) readEnum(key, section string, values ...string) string {
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = strconv.Quote(v)
	}
	last := len(quoted) - 1
	rule := strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	return o.readText(key, true, section, rule, func(s string) (string, bool) {
		for i, v := range values {
			if strings.EqualFold(strings.ReplaceAll(strings.TrimSpace(s), "_", "-"), v) {
				return "write " + quoted[i], s == v
			}
		}
		return "", false
	})
}

// readPCIAddress returns the value of a key that holds a PCI address, in lower case.
func (o object) readPCIAddress(key string, required bool, section string) string {
	rule := "a PCI address dddd:BB:DD.f"
	if n := o.findMember(key); n != nil && n.Kind == jsontree.String {
		if guess, ok := guessPCIAddress(n.Text); ok {
			rule += " such as " + guess
		}
	}
	address := o.readText(key, required, section, rule, func(s string) (string, bool) {
		return explainPCIAddress(s), isFullPCIAddress(s)
	})
	return strings.ToLower(address)
}

// reportMissing reports a missing key at the place of another value.
func (o object) reportMissing(key string, at *jsontree.Node, section, rule string) {
	o.addFault(FieldError{Line: at.Line, Column: at.Column, Field: joinPath(o.path, key),
		Rule: "missing; must be " + rule, Section: section, Hint: o.hintRename(key)})
}

// hintRename finds an unknown key that probably stands for key: pciAddress, pci_address.
func (o object) hintRename(key string) string {
	squeeze := strings.NewReplacer("-", "", "_", "", ".", "", " ", "")
	for _, m := range o.node.Children {
		if !slices.Contains(o.known, m.Key) && strings.EqualFold(squeeze.Replace(m.Key), squeeze.Replace(key)) {
			return fmt.Sprintf("rename %s to %q", quoteKey(m.Key), key)
		}
	}
	return ""
}

func (v *validator) reportType(n *jsontree.Node, path, rule, section string) {
	found := n.Kind.String()
	if n.Kind == jsontree.Bool || n.Kind == jsontree.Number || n.Kind == jsontree.String {
		found += " " + v.sourceOf(n)
	}
	v.addFault(FieldError{Line: n.Line, Column: n.Column, Field: path, Found: found, Rule: "must be " + rule,
		Section: section})
}

// sourceOf returns a value as the source has it.
func (v *validator) sourceOf(n *jsontree.Node) string { return excerpt(v.source[n.Start:n.End]) }

// unknownMembers returns the members that the specification does not know, as compact JSON.
func (o object) unknownMembers() map[string]json.RawMessage {
	var extra map[string]json.RawMessage
	for _, m := range o.node.Children {
		var b bytes.Buffer
		if slices.Contains(o.known, m.Key) || json.Compact(&b, []byte(o.source[m.Start:m.End])) != nil {
			continue
		}
		if extra == nil {
			extra = map[string]json.RawMessage{}
		}
		extra[m.Key] = b.Bytes()
	}
	return extra
}
