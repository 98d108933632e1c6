// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/sysfs"
)

// device is the configuration's device: the keys of the device-info map of its
// type (Device Information Specification, §3.1).
type device struct {
	kind  deviceinfo.Type
	field map[string]string
}

// deviceKeys are the keys of each type's map.
var deviceKeys = map[deviceinfo.Type][]string{
	deviceinfo.TypePCI:       {"pci-address", "vhost-net", "rdma-device", "pf-pci-address", "representor-device"},
	deviceinfo.TypeVDPA:      {"parent-device", "driver", "path", "pci-address", "pf-pci-address", "representor-device"},
	deviceinfo.TypeVhostUser: {"mode", "path"},
	deviceinfo.TypeMemif:     {"role", "path", "mode"},
}

// deviceValues are the values of keys that choose, by type.
var deviceValues = map[deviceinfo.Type]map[string][]string{
	deviceinfo.TypeVhostUser: {"mode": {"server", "client"}},
	deviceinfo.TypeMemif:     {"role": {"master", "slave"}, "mode": {"ethernet", "ip", "inject-punt"}},
	deviceinfo.TypeVDPA:      {"driver": {"vhost", "virtio"}},
}

func (c *conf) readDevice(v value) error {
	list, err := v.members()
	if err != nil {
		return err
	}
	c.device.field = map[string]string{}
	for _, m := range list {
		if m.last() == "type" {
			kind, err := m.text()
			if err != nil {
				return err
			}
			c.device.kind = deviceinfo.Type(kind)
		}
	}
	known, ok := deviceKeys[c.device.kind]
	if !ok {
		return invalid("device.type", `"`+short(string(c.device.kind))+`"`, "pci, vdpa, vhost-user or memif")
	}
	for _, m := range list {
		switch {
		case m.last() == "type":
		case m.last() == "version":
			if s, err := m.text(); err != nil || s != deviceinfo.Version && s != "1.0.0" {
				return invalid(m.key, compact(m.raw), "a version of the Device Information Specification, 1.0.0 or 1.1.0")
			}
		case !slices.Contains(known, m.last()):
			return unsupported("device-info of type "+string(c.device.kind)+" has "+strings.Join(known, ", "), field{m.key, m.raw})
		default:
			if c.device.field[m.last()], err = m.text(); err != nil {
				return err
			}
		}
	}
	return c.device.check()
}

// check holds the device against the specification as far as the configuration
// alone can tell.
func (d *device) check() error {
	for _, key := range deviceKeys[d.kind] {
		values, chooses := deviceValues[d.kind][key]
		s := d.field[key]
		if !chooses || s == "" {
			continue // a socket's may be in the device plugin's device-info: see completeSocket
		}
		if !slices.Contains(values, s) {
			return invalid("device."+key, `"`+short(s)+`"`, strings.Join(values, " or "))
		}
	}
	if d.isSocket() {
		return d.checkSocketPath()
	}
	for _, key := range []string{"pci-address", "pf-pci-address"} {
		if s := d.field[key]; s != "" {
			address, err := sysfs.ParseAddress(s)
			if err != nil {
				return invalid("device."+key, `"`+short(s)+`"`, "a PCI address, dddd:BB:DD.f")
			}
			d.field[key] = address
		}
	}
	return nil
}

// socketFields are the fields of a socket's device-info by the configuration's keys.
func socketFields(info *deviceinfo.Info) map[string]string {
	switch {
	case info == nil:
	case info.Type == deviceinfo.TypeVhostUser:
		return map[string]string{"mode": string(info.VhostUser.Mode), "path": info.VhostUser.Path}
	case info.Type == deviceinfo.TypeMemif:
		return map[string]string{"role": string(info.Memif.Role), "path": info.Memif.Path, "mode": string(info.Memif.Mode)}
	}
	return nil
}

// completeSocket takes what the configuration does not say of the socket from the
// device plugin's device-info, described, which file is a copy of. It is the allocated
// port's: what the configuration says otherwise is another port, and an error. The
// path is for decidePlace to compare.
func (d *device) completeSocket(file string, described *deviceinfo.Info) error {
	if described != nil && described.Type != d.kind {
		return differs("type", string(d.kind), string(described.Type), file, "type")
	}
	says := socketFields(described)
	for _, key := range deviceKeys[d.kind] {
		if key == "path" {
			continue
		}
		have, want := d.field[key], says[key]
		switch {
		case have == "":
			d.field[key] = want
		case want != "" && have != want:
			return differs(key, have, want, file, string(d.kind)+"."+key)
		}
		if d.kind == deviceinfo.TypeMemif && key == "mode" && d.field[key] == "" {
			d.field[key] = string(deviceinfo.MemifEthernet)
		}
		if d.field[key] == "" {
			return invalid("device."+key, `""`, strings.Join(deviceValues[d.kind][key], " or "))
		}
	}
	return nil
}

// differs is the error of a configuration that contradicts the device plugin's
// device-info.
func differs(key, have, want, file, field string) error {
	return invalid("device."+key, `"`+short(have)+`"`, fmt.Sprintf(`"%s", which the device plugin's device-info has for the allocated device in %s of %q: `+
		`remove device.%s from the configuration, or resourceName from the network's definition`, short(want), field, file, key))
}

// decidePlace decides where the socket is: where the device plugin's device-info says,
// or where the configuration has it.
func (c *call) decidePlace(a *addition) error {
	d := &c.conf.device
	if !d.isSocket() {
		return nil
	}
	file := path.Join(c.conf.infoDir, a.record.InfoFile)
	if err := d.completeSocket(file, a.before); err != nil {
		return err
	}
	have, described := d.field["path"], socketFields(a.before)["path"]
	if described != "" {
		switch own, err := c.placeSocket(); {
		case err == nil && own.dir != "" && own.socket == described:
			a.place = own // an earlier ADD of this attachment wrote the file
			return nil
		case have == "" || c.samePath(have, described):
			a.place = place{socket: described}
			if strings.HasPrefix(described, "@") {
				return nil
			}
			return c.checkLength(described)
		default:
			return differs("path", have, described, file, string(d.kind)+".path")
		}
	}
	if err := d.checkSocketPath(); err != nil {
		return err
	}
	var err error
	a.place, err = c.placeSocket()
	return err
}

// samePath reports whether two paths of the host, or abstract names, are of one socket.
func (c *call) samePath(a, b string) bool {
	return a == b || path.IsAbs(a) && path.IsAbs(b) && c.Host.Canonical(a) == c.Host.Canonical(b)
}

func (d *device) isSocket() bool {
	return d.kind == deviceinfo.TypeVhostUser || d.kind == deviceinfo.TypeMemif
}

// hostCreates reports whether the host side makes the socket.
func (d *device) hostCreates() bool {
	return d.kind == deviceinfo.TypeVhostUser && d.field["mode"] == string(deviceinfo.VhostUserClient) ||
		d.kind == deviceinfo.TypeMemif && d.field["role"] == string(deviceinfo.MemifSlave)
}

// creatorKnown reports whether the configuration says who makes the socket.
func (d *device) creatorKnown() bool {
	return d.field["mode"] != "" && d.kind == deviceinfo.TypeVhostUser || d.field["role"] != ""
}

func (d *device) abstract() bool {
	return d.kind == deviceinfo.TypeMemif && strings.HasPrefix(d.field["path"], "@")
}

// checkSocketPath accepts the path of a socket: a file's name in the attachment's
// directory, an abstract name of a memif socket, or, where the host makes the
// socket, a path of its own.
func (d *device) checkSocketPath() error {
	p := d.field["path"]
	found := `"` + short(p) + `"`
	switch {
	case p == "":
	case d.abstract():
		if len(p) < 2 || len(p) > sunPath || strings.IndexByte(p, 0) >= 0 {
			return invalid("device.path", found, `"@" and a name, 107 bytes at most`)
		}
	case path.IsAbs(p):
		if d.creatorKnown() && !d.hostCreates() {
			return invalid("device.path", found, "a file's name: where the application makes the socket, its directory is the attachment's own, which this plugin makes")
		}
		if path.Clean(p) != p {
			return invalid("device.path", found, "a clean path")
		}
	case deviceinfo.CheckFileName(p) != nil:
		return invalid("device.path", found, `a file's name without "/" that does not start with "."`)
	}
	return nil
}

// deviceID is the device that the runtime, Multus or the configuration names.
// Two that differ are an error.
func (c *conf) deviceID() (id string, err error) {
	from := ""
	for _, key := range slices.Sorted(maps.Keys(c.deviceIDs)) {
		switch next := c.deviceIDs[key]; {
		case id == "":
			id, from = next, key
		case !strings.EqualFold(id, next):
			return "", invalid(key, `"`+short(next)+`"`, `the device that `+from+` names, "`+short(id)+`"`)
		}
	}
	return id, nil
}

// describe is the device-info of a device that is not a socket, as the
// configuration, the device's ID and the kernel have it. current is what the
// device plugin said of it, nil for nothing.
func (c *conf) describe(host hostfs.Root, current *deviceinfo.Info) (*deviceinfo.Info, error) {
	id, err := c.deviceID()
	if err != nil {
		return nil, err
	}
	info := &deviceinfo.Info{Type: c.device.kind, Version: deviceinfo.Version}
	if current != nil {
		if current.Type != c.device.kind {
			return nil, invalid("device.type", `"`+string(c.device.kind)+`"`, `"`+string(current.Type)+`", which is the type in the device-info file that the device plugin wrote`)
		}
		info = current.Clone()
		info.Version = deviceinfo.Version
	}
	if c.device.kind == deviceinfo.TypePCI {
		return info, c.describePCI(host, id, info)
	}
	return info, c.describeVDPA(host, id, info)
}

// one gives the value that all sources that have one agree on.
func one(key string, sources ...string) (string, error) {
	found := ""
	for _, s := range sources {
		if found != "" && s != "" && !strings.EqualFold(found, s) {
			return "", invalid("device."+key, `"`+short(found)+`"`, `"`+short(s)+`", which another source says`)
		}
		if found == "" {
			found = s
		}
	}
	return found, nil
}

func (c *conf) describePCI(host hostfs.Root, id string, info *deviceinfo.Info) error {
	if info.PCI == nil {
		info.PCI = &deviceinfo.PCI{}
	}
	p := info.PCI
	if id != "" {
		if _, err := sysfs.ParseAddress(id); err != nil {
			if p.PCIAddress == "" && c.device.field["pci-address"] == "" {
				return invalid("deviceID", `"`+short(id)+`"`, "a PCI address, dddd:BB:DD.f, or a device-info file of the device plugin that says it")
			}
			id = "" // the device plugin's own name for it
		}
	}
	address, err := one("pci-address", c.device.field["pci-address"], id, p.PCIAddress)
	if err != nil {
		return err
	}
	if address == "" {
		return invalid("deviceID", "nothing", "the PCI device: runtimeConfig.deviceID, which a runtime fills in, or deviceID, or device.pci-address")
	}
	dev, err := sysfs.PCI(host, address)
	if err != nil {
		return deviceError(address, err)
	}
	p.PCIAddress = dev.Address
	set(&p.VhostNet, c.device.field["vhost-net"])
	set(&p.RDMADevice, c.device.field["rdma-device"])
	set(&p.PFPCIAddress, dev.Physical)
	set(&p.PFPCIAddress, c.device.field["pf-pci-address"])
	set(&p.RepresentorDevice, c.device.field["representor-device"])
	return nil
}

func (c *conf) describeVDPA(host hostfs.Root, id string, info *deviceinfo.Info) error {
	if info.VDPA == nil {
		info.VDPA = &deviceinfo.VDPA{}
	}
	v := info.VDPA
	address, name := "", id
	if a, err := sysfs.ParseAddress(id); err == nil {
		address, name = a, ""
	}
	name, err := one("parent-device", c.device.field["parent-device"], v.ParentDevice, name)
	if err != nil {
		return err
	}
	if address, err = one("pci-address", c.device.field["pci-address"], v.PCIAddress, address); err != nil {
		return err
	}
	if name == "" && address == "" {
		return invalid("deviceID", "nothing", "the vDPA device or its PCI function: runtimeConfig.deviceID, which a runtime fills in, or deviceID, or device.parent-device")
	}
	dev, err := findVDPA(host, name, address)
	if err != nil {
		return err
	}
	if _, err := one("driver", c.device.field["driver"], dev.Driver); err != nil {
		return err
	}
	if _, err := one("pci-address", address, dev.Address); err != nil {
		return err
	}
	v.ParentDevice, v.Driver, v.PCIAddress = dev.Name, deviceinfo.VDPADriver(dev.Driver), dev.Address
	if len(dev.Nodes) > 0 {
		v.Path = dev.Nodes[0].Path
	} else if virtio := virtioDir(host, dev.Dir); virtio != "" {
		v.Path = virtio
	}
	if _, err := one("path", c.device.field["path"], v.Path); err != nil {
		return err
	}
	if v.PCIAddress != "" && v.PFPCIAddress == "" {
		if pci, err := sysfs.PCI(host, v.PCIAddress); err == nil {
			v.PFPCIAddress = pci.Physical
		}
	}
	set(&v.PFPCIAddress, c.device.field["pf-pci-address"])
	set(&v.RepresentorDevice, c.device.field["representor-device"])
	return nil
}

const (
	vdpaDir  = "/sys/bus/vdpa/devices"
	maxNames = 4096
)

// findVDPA reads a vDPA device by its name, or by the PCI function it hangs below.
func findVDPA(host hostfs.Root, name, address string) (sysfs.VDPADevice, error) {
	if name != "" {
		dev, err := sysfs.VDPA(host, name)
		return dev, deviceError(name, err)
	}
	names, err := host.ReadDir(vdpaDir, maxNames)
	if err != nil && !errdefs.IsNotFound(err) {
		return sysfs.VDPADevice{}, deviceError(address, err)
	}
	var found []sysfs.VDPADevice
	for _, n := range names {
		if dev, err := sysfs.VDPA(host, n); err == nil && dev.Address == address {
			found = append(found, dev)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return sysfs.VDPADevice{}, fail(codeDevice, "device "+address+" cannot be used", "no device in %s that is bound to a driver hangs below PCI function %s: add one with the vdpa command", vdpaDir, address)
	}
	return sysfs.VDPADevice{}, fail(codeDevice, "device "+address+" cannot be used", "%d vDPA devices hang below PCI function %s: choose one with device.parent-device", len(found), address)
}

// virtioDir is the device on the virtio bus that a vDPA device bound to the virtio
// driver is, "" for none.
func virtioDir(host hostfs.Root, dir string) string {
	names, err := host.ReadDir(dir, maxNames)
	if err != nil {
		return ""
	}
	for _, n := range names {
		if strings.HasPrefix(n, "virtio") {
			return path.Join("/sys/bus/virtio/devices", n)
		}
	}
	return ""
}

func deviceError(id string, err error) error {
	if err == nil {
		return nil
	}
	return fail(codeDevice, "device "+short(id)+" cannot be used", "%v", err)
}

func set(to *string, s string) {
	if s != "" {
		*to = s
	}
}

// extraKey is the key of device-info below which the plugin notes what the
// specification has no key for, so that those who read the file have it too: the
// vswitch's side, and pkg/resolve for devices.json.
const extraKey = "jackfield.dev/interface"

// notes is what the file says of the interface beyond its device.
type notes struct {
	Network   string          `json:"network,omitempty"`
	MAC       string          `json:"mac,omitempty"`
	IPs       []string        `json:"ips,omitempty"`
	Gateway   []string        `json:"gateway,omitempty"`
	DNS       *dnsNote        `json:"dns,omitempty"`
	Bandwidth json.RawMessage `json:"bandwidth,omitempty"`
	Labels    []label         `json:"labels,omitempty"`
}

// dnsNote has the keys of a result's dns.
type dnsNote struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// note puts n into the device-info.
func note(info *deviceinfo.Info, n notes) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if info.Extra == nil {
		info.Extra = map[string]json.RawMessage{}
	}
	delete(info.Extra, extraKey)
	if string(raw) != "{}" {
		info.Extra[extraKey] = raw
	}
	return nil
}

// notedFor is the network whose interface this plugin noted in the device-info; "" for
// none.
func notedFor(info *deviceinfo.Info) string {
	var n notes
	if json.Unmarshal(info.Extra[extraKey], &n) != nil {
		return ""
	}
	return n.Network
}
