// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"slices"
	"strings"
)

// The rules of §3.1, one function a map. Each returns what it read; it is sound
// when the collector got no errors.

func (k *checker) info(n *node, path *keyPath) *Info {
	info := &Info{}
	if n.kind == kindBad {
		return info
	}
	o, ok := k.object(n, path, "3.1", "type", "version", "pci", "vdpa", "vhost-user", "memif")
	if !ok {
		return info
	}
	types := []string{string(TypePCI), string(TypeVDPA), string(TypeVhostUser), string(TypeMemif)}
	info.Type = Type(o.enum("type", "3.1.1", types...))
	o.suggestType(types)
	info.Version = o.text("version", true, "3.1.2", `the version of the specification, "1.1.0" or "1.0.0"`, checkVersion)
	k.versionWarnings(o, info.Version)

	if m := o.get("pci"); m != nil {
		info.PCI = k.pci(m, path.child("pci"))
	}
	if m := o.get("vdpa"); m != nil {
		info.VDPA = k.vdpa(m, path.child("vdpa"))
	}
	if m := o.get("vhost-user"); m != nil {
		info.VhostUser = k.vhostUser(m, path.child("vhost-user"))
	}
	if m := o.get("memif"); m != nil {
		info.Memif = k.memif(m, path.child("memif"))
	}
	if info.Type != "" && o.get(string(info.Type)) == nil {
		section := map[Type]string{TypePCI: "3.1.3", TypeVDPA: "3.1.4", TypeVhostUser: "3.1.5", TypeMemif: "3.1.6"}[info.Type]
		o.missing(string(info.Type), o.get("type").start, section, fmt.Sprintf("a map, because \"type\" is %q", info.Type))
	}
	info.Extra = o.extra()
	return info
}

// suggestType completes the finding that "type" is missing, where the only map
// there is tells which type it is.
func (o object) suggestType(types []string) {
	var there []string
	for _, t := range types {
		if o.get(t) != nil {
			there = append(there, t)
		}
	}
	if o.get("type") == nil && !o.node.partial && len(there) == 1 {
		o.errs[len(o.errs)-1].hint = fmt.Sprintf("add \"type\": %q", there[0])
	}
}

// versionWarnings tells of what this package reads but was not built for.
func (k *checker) versionWarnings(o object, version string) {
	n := o.get("version")
	if version == "" || n == nil {
		return
	}
	if version != Version100 && version != Version110 {
		k.warn(finding{off: n.start, key: o.path.child("version").String(), found: k.source(n.start, n.end),
			rule: `"1.1.0" or "1.0.0"`, section: "3.1.2", hint: "it is read as 1.1.0; keys that a later version added have no effect"})
	}
	if version != Version100 {
		return
	}
	for _, t := range []string{"pci", "vdpa"} {
		m := o.get(t)
		if m == nil {
			continue
		}
		for _, mm := range m.members {
			if mm.key == "representor-device" {
				k.warn(finding{off: mm.start, key: o.path.child(t).child(mm.key).String(), found: k.source(mm.start, mm.end),
					rule: `"version" to be "1.1.0"`, section: map[string]string{"pci": "3.1.3.5", "vdpa": "3.1.4.6"}[t], hint: "1.0.0 does not have the key"})
			}
		}
	}
}

func (k *checker) pci(n *node, path *keyPath) *PCI {
	o, ok := k.object(n, path, "3.1.3", "pci-address", "vhost-net", "rdma-device", "pf-pci-address", "representor-device")
	if !ok {
		return nil
	}
	return &PCI{
		PCIAddress:        o.bdf("pci-address", true, "3.1.3.1"),
		VhostNet:          o.text("vhost-net", false, "3.1.3.2", "the absolute path of the vhost-net character device", checkPath),
		RDMADevice:        o.text("rdma-device", false, "3.1.3.3", "the name of an RDMA device", checkNames),
		PFPCIAddress:      o.bdf("pf-pci-address", false, "3.1.3.4"),
		RepresentorDevice: o.text("representor-device", false, "3.1.3.5", "the name of a network device", checkNetdev),
		Extra:             o.extra(),
	}
}

func (k *checker) vdpa(n *node, path *keyPath) *VDPA {
	o, ok := k.object(n, path, "3.1.4", "parent-device", "driver", "path", "pci-address", "pf-pci-address", "representor-device")
	if !ok {
		return nil
	}
	v := &VDPA{
		ParentDevice: o.text("parent-device", true, "3.1.4.1", "the name of a device in /sys/bus/vdpa/devices", checkName),
		Driver:       VDPADriver(o.enum("driver", "3.1.4.2", string(VDPAVhost), string(VDPAVirtio))),
	}
	const rule = "the absolute path of the vhost or virtio device"
	tolerated := v.Driver == VDPAVirtio && !k.opts.RequireVDPAPath
	v.Path = o.text("path", !tolerated, "3.1.4.3", rule, checkPath)
	if tolerated && o.get("path") == nil && !n.partial {
		k.warn(finding{off: n.start, key: path.child("path").String(), rule: rule, section: "3.1.4.3",
			hint: "tolerated, because nothing needs it with the virtio driver"})
	}
	v.PCIAddress = o.bdf("pci-address", false, "3.1.4.4")
	v.PFPCIAddress = o.bdf("pf-pci-address", false, "3.1.4.5")
	v.RepresentorDevice = o.text("representor-device", false, "3.1.4.6", "the name of a network device", checkNetdev)
	v.Extra = o.extra()
	return v
}

func (k *checker) vhostUser(n *node, path *keyPath) *VhostUser {
	o, ok := k.object(n, path, "3.1.5", "mode", "path")
	if !ok {
		return nil
	}
	return &VhostUser{
		Mode:  VhostUserMode(o.enum("mode", "3.1.5.1", string(VhostUserClient), string(VhostUserServer))),
		Path:  o.text("path", true, "3.1.5.2", "the absolute path of the vhost-user socket, at most 107 bytes", checkSocket),
		Extra: o.extra(),
	}
}

func (k *checker) memif(n *node, path *keyPath) *Memif {
	o, ok := k.object(n, path, "3.1.6", "role", "path", "mode")
	if !ok {
		return nil
	}
	return &Memif{
		Role:  MemifRole(o.enum("role", "3.1.6.1", string(MemifMaster), string(MemifSlave))),
		Path:  o.text("path", true, "3.1.6.2", `the absolute path of the memif socket, or "@" and an abstract name, at most 107 bytes`, checkMemifSocket),
		Mode:  MemifMode(o.enum("mode", "3.1.6.3", string(MemifEthernet), string(MemifIP), string(MemifInjectPunt))),
		Extra: o.extra(),
	}
}

// enum is the value of a required key that has one of a few values.
func (o object) enum(key, section string, values ...string) string {
	if n := o.get(key); n != nil && n.kind == kindString && slices.Contains(values, n.text) {
		return n.text
	}
	quoted := make([]string, len(values))
	for i, v := range values {
		quoted[i] = fmt.Sprintf("%q", v)
	}
	last := len(quoted) - 1
	rule := strings.Join(quoted[:last], ", ") + " or " + quoted[last]
	return o.text(key, true, section, rule, func(s string) (string, bool) {
		for i, v := range values {
			if strings.EqualFold(strings.ReplaceAll(strings.TrimSpace(s), "_", "-"), v) {
				return "write " + quoted[i], false
			}
		}
		return "", false
	})
}

// bdf is the value of a key that holds a PCI address.
func (o object) bdf(key string, required bool, section string) string {
	rule := "a PCI address dddd:BB:DD.f"
	if n := o.get(key); n != nil && n.kind == kindString {
		if s, ok := canonicalPCIAddress(n.text); ok {
			return s
		}
		if better, ok := guessPCIAddress(n.text); ok {
			rule += " such as " + better
		}
	}
	return o.text(key, required, section, rule, func(s string) (string, bool) { return explainPCIAddress(s), false })
}
