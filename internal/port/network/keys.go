// SPDX-License-Identifier: Apache-2.0

package network

import (
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// readIPAM reads the type of the IPAM plugin. The plugin reads the other keys itself.
func (c *Config) readIPAM(v value) error {
	list, err := c.members(v)
	if err != nil {
		return err
	}
	kind := v.member("type") // runtimes write "ipam": {} for none
	name, err := c.decodeString(kind)
	if err != nil {
		return err
	}
	if strings.ContainsAny(name, `/\`) || name == "." || name == ".." {
		return c.invalidValue(kind, "the name of a plugin's executable, without a path")
	}
	other := slices.IndexFunc(list, func(m value) bool { return m.Key != "type" })
	if name == "" && other >= 0 {
		return c.Invalid("ipam.type", c.sourceOf(kind.Node),
			"the name of the IPAM plugin, because ipam has other keys"+diag.Suggest(list[other].Key, "type"))
	}
	// The plugin would recurse.
	own := ""
	if n := c.root.Member("type"); n != nil {
		own = n.Text
	}
	if name != "" && (name == own || strings.HasPrefix(name, "jackfield-")) {
		return attach.Fail(types.ErrInvalidNetworkConfig,
			"invalid network configuration: ipam.type: "+diag.Quote(name),
			"%sinvalid value %s: must be an IPAM plugin, such as host-local",
			c.Place("ipam"), diag.Quote(name))
	}
	c.IPAMType = name
	return nil
}

// readDNS reads dns (CNI specification, section 1).
func (c *Config) readDNS(v value) error {
	list, err := c.members(v)
	if err != nil {
		return err
	}
	for _, m := range list {
		if !slices.Contains([]string{"nameservers", "domain", "search", "options"}, m.Key) {
			return c.Unsupported("the specification's dns has nameservers, domain, search and options", m.path)
		}
	}
	dns := &types.DNS{}
	if err := c.decode(v, dns, "a map with nameservers, search and options, each a list of strings, and the "+
		"string domain"); err != nil {
		return err
	}
	c.DNS, err = c.checkDNS(dns, "dns.nameservers")
	return err
}

// checkDNS checks DNS settings. It returns nil for empty ones. key is the key of the name servers.
func (c *Config) checkDNS(dns *types.DNS, key string) (*types.DNS, error) {
	for _, s := range dns.Nameservers {
		// A runtime passes the host's nameservers, which can have a zone: fe80::1%eth0.
		if _, err := netip.ParseAddr(s); err != nil {
			return nil, c.Invalid(key, diag.Quote(s), "IP addresses")
		}
	}
	if dns.IsEmpty() {
		return nil, nil
	}
	return dns, nil
}

// readIPMasq refuses true, which this plugin could only ignore.
func (c *Config) readIPMasq(v value) error {
	var on bool
	if err := c.decode(v, &on, "true or false"); err != nil {
		return err
	}
	if on {
		return c.Unsupported("packets of a userspace interface do not pass the host's firewall: masquerading "+
			"is impossible", v.path)
	}
	return nil
}

// readPrevResult keeps the node, because its format depends on cniVersion.
func (c *Config) readPrevResult(v value) error {
	if !v.isNull() {
		c.PrevResult = v.Node
	}
	return nil
}

// readValidAttachments reads the attachments that GC keeps (CNI specification, section 2).
func (c *Config) readValidAttachments(v value) error {
	c.ValidGiven = true // libcni writes null for an empty list
	const rule = "a list of maps with containerID and ifname"
	if err := c.decode(v, &c.Valid, rule); err != nil {
		return err
	}
	for _, a := range c.Valid {
		// An incomplete element would cause the removal of a living attachment.
		if a.ContainerID == "" || a.IfName == "" {
			return c.invalidValue(v, rule+", neither of them empty")
		}
	}
	return nil
}

// readDeviceID keeps a device ID under its key, because several keys can name the device.
func (c *Config) readDeviceID(v value) error {
	id, err := c.decodeString(v)
	if err == nil && id != "" {
		c.DeviceIDs[v.path] = id
	}
	return err
}

// readDir reads a directory that the network chooses. The node's configuration must list it, which is checked later.
func (c *Config) readDir(v value) error {
	dir, err := c.decodeString(v)
	if err != nil || dir == "" {
		return err
	}
	if hostfs.CheckPath(dir) != nil {
		return c.invalidValue(v, "an absolute path")
	}
	if path.Clean(dir) != dir {
		return c.invalidValue(v, "a path without //, /./, /../ and without / at the end, which is "+
			diag.Quote(path.Clean(dir)))
	}
	if reserved.IsShared(dir) || reserved.Tree(dir) != "" {
		return c.invalidValue(v, "a directory of its own, not one of the system")
	}
	c.chosen[v.Key] = dir
	return nil
}

// readLocation reads a size or file that ApplyLocations checks later.
func (c *Config) readLocation(v value) error {
	if err := c.readValue(v); err != nil || v.isEmpty() {
		return err
	}
	c.chosen[v.Key] = v.Text
	return nil
}

// readDevice reads the key device: the keys of the device-info map of its type.
func (c *Config) readDevice(v value) error {
	list, err := c.members(v)
	if err != nil {
		return err
	}
	kind, err := c.decodeString(v.member("type"))
	if err != nil {
		return err
	}
	c.Device = attach.Device{Kind: deviceinfo.Type(kind), Field: map[string]string{}}
	known, ok := attach.DeviceKeys[c.Device.Kind]
	if !ok {
		return c.Invalid("device.type", diag.Quote(kind), "pci, vdpa, vhost-user or memif")
	}
	for _, m := range list {
		switch {
		case m.Key == "type":
		case m.Key == "version":
			if s, err := c.decodeString(m); err != nil || s != deviceinfo.Version && s != "1.0.0" {
				return c.invalidValue(m, "a version of the Device Information Specification, 1.0.0 or 1.1.0")
			}
		case !slices.Contains(known, m.Key):
			return c.Unsupported("device-info of type "+kind+" has "+strings.Join(known, ", ")+diag.Suggest(m.Key,
				known...), m.path)
		default:
			if c.Device.Field[m.Key], err = c.decodeString(m); err != nil {
				return err
			}
		}
	}
	return c.CheckDevice()
}

// readValue reads a number or a text whose rule package attach defines.
func (c *Config) readValue(v value) error {
	if v.isEmpty() {
		return nil
	}
	text := "" // invalid for each key
	isNumber := slices.Contains([]string{"mtu", "vlan", "queues"}, v.path)
	if v.Kind == jsontree.Number && (isNumber || v.path == "rate") || v.Kind == jsontree.String && !isNumber {
		text = v.Text
	}
	if rule := c.SetValue(v.path, text); rule != "" {
		return c.invalidValue(v, rule)
	}
	return nil
}
