// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// conf is a plugin's configuration (§1, Plugin configuration objects, and §3,
// Deriving request configuration).
type conf struct {
	attach.Attachment
	source     string         // the whole configuration
	root       *jsontree.Node // the same
	version    string
	ipam       string // type; "" for none
	ipamErr    error  // fault of ipam, for DEL and GC
	dns        *types.DNS
	runtime    runtimeConf
	args       conventionalArgs
	prevResult *jsontree.Node // nil for the first plugin of a network
	valid      []types.GCAttachment
	validGiven bool
	chosen     map[string]string // location keys with their values
}

// keys are the known keys of the configuration with their readers; nil is for keys that this plugin does not
// use.
var keys = map[string]func(*conf, value) error{
	// Keys of the specification.
	"cniVersion":   nil,
	"name":         nil,
	"type":         nil,
	"capabilities": nil,
	"ipam":         (*conf).readIPAM,
	"dns":          (*conf).readDNS,
	"ipMasq":       (*conf).readIPMasq,
	"args":         (*conf).readArgs,
	"prevResult":   (*conf).readPrevResult,
	// Keys of the whole network. Runtimes that run a single plugin pass them too.
	"cniVersions":            nil,
	"disableCheck":           nil,
	"disableGC":              nil,
	"loadOnlyInlinedPlugins": nil,
	// Keys of runtimes.
	"runtimeConfig":             (*conf).readRuntimeConfig,
	"cni.dev/valid-attachments": (*conf).readValidAttachments,
	// Keys of Multus and of this plugin.
	"deviceID":      (*conf).readDeviceID,
	"pciBusID":      (*conf).readDeviceID,
	"device":        (*conf).readDevice,
	"socketDir":     (*conf).readDir,
	"socketDirSize": (*conf).readLocation,
	"stateDir":      (*conf).readDir,
	"claimsDir":     (*conf).readDir,
	"deviceInfoDir": (*conf).readDir,
	"configFile":    (*conf).readLocation,
	"timeout":       (*conf).readValue,
	"vswitch":       func(c *conf, v value) error { return c.decode(v, &c.Port.Vswitch, "a string") },
	"bridge":        func(c *conf, v value) error { return c.decode(v, &c.Port.Bridge, "a string") },
	"mtu":           (*conf).readValue,
	"vlan":          (*conf).readValue,
	"queues":        (*conf).readValue,
	"rate":          (*conf).readValue,
}

// parseJSONObject parses one JSON object. what names it in errors (code 6).
func parseJSONObject(what string, data []byte) (*jsontree.Node, error) {
	root, fault := jsontree.Parse(string(data))
	if fault == nil && root.Kind != jsontree.Object {
		fault = &diag.Diagnostic{Line: root.Line, Column: root.Column, Found: root.Kind.String(), Rule: "must be an object"}
	}
	if fault != nil {
		return nil, attach.Fail(codeDecode, "failed to decode "+what, "line %d, column %d: %s", fault.Line, fault.Column, fault.Message())
	}
	return root, nil
}

// parseHeader parses a configuration up to its version and name, which are checked before its other keys.
func parseHeader(data []byte) (*conf, error) {
	root, err := parseJSONObject("the network configuration", data)
	if err != nil {
		return nil, err
	}
	c := &conf{source: string(data), root: root, version: "0.1.0"} // the version of a configuration without a version
	c.Source = c
	for _, f := range []struct {
		key string
		to  *string
	}{{"name", &c.Network}, {"cniVersion", &c.version}} {
		n := root.Member(f.key)
		if n == nil || n.Kind == jsontree.Null {
			continue
		}
		if n.Kind != jsontree.String {
			return c, attach.Fail(codeDecode, "failed to decode the network configuration", "%s%s: found %s, want a string", c.Place(f.key), f.key, c.sourceOf(n))
		}
		*f.to = n.Text
	}
	if _, _, _, err := version.ParseVersion(c.version); err != nil {
		return c, attach.Fail(codeDecode, "failed to decode version info", "%scniVersion: found %q, want major.minor.patch", c.Place("cniVersion"), diag.Excerpt(c.version, diag.MaxExcerpt))
	}
	return c, nil
}

// readKeys reads the keys of the configuration. An unknown key is an error (code 2). permissive is for DEL and
// GC: then only faults that prevent finding the attachment are errors.
func (c *conf) readKeys(permissive bool) error {
	c.SocketDir, c.StateDir, c.ClaimsDir, c.InfoDir = attach.DefaultSocketDir, attach.DefaultStateDir, attach.DefaultClaimsDir, deviceinfo.DefaultCNIDir
	c.ConfigFile = config.DefaultPath
	c.DeviceIDs, c.chosen = map[string]string{}, map[string]string{}
	if err := utils.ValidateNetworkName(c.Network); err != nil {
		return c.Invalid("name", diag.Quote(c.Network), "a letter or digit, then letters, digits, _ . and -")
	}
	var unknown []string
	for _, n := range c.root.Children {
		read, known := keys[n.Key]
		if !known && !strings.HasPrefix(n.Key, "cni.dev/") { // reserved for the protocol
			unknown = append(unknown, n.Key)
		}
		if read == nil {
			continue
		}
		switch err := read(c, value{n.Key, n}); {
		case err == nil:
		case permissive && n.Key == "ipam":
			c.ipamErr = err
		case !permissive || n.Key == "cni.dev/valid-attachments":
			return err
		}
	}
	if permissive {
		return nil
	}
	if len(unknown) > 0 {
		return c.Unsupported("neither the CNI specification, its runtimes, Multus nor this plugin defines it"+diag.Suggest(unknown[0], slices.Sorted(maps.Keys(keys))...), unknown...)
	}
	if c.root.Member("device") == nil {
		return c.Invalid("device", "nothing", `a map with the device's type, as {"type": "vhost-user", "mode": "server"}`)
	}
	return c.CheckPort()
}

// value is a value of the configuration. Its path is its key and those of the maps around it, with dots.
type value struct {
	path string
	*jsontree.Node
}

// member returns the value of a key of a map; its Node is nil if there is none.
func (v value) member(key string) value { return value{v.path + "." + key, v.Member(key)} }

func (v value) isNull() bool { return v.Node == nil || v.Kind == jsontree.Null }

// isEmpty reports whether a value requests nothing.
func (v value) isEmpty() bool {
	return v.isNull() || v.Kind >= jsontree.String && v.Text == "" && len(v.Children) == 0
}

// decode decodes a value with encoding/json, which ignores the case of keys: containerd writes some with a
// capital letter. null leaves to unchanged.
func (c *conf) decode(v value, to any, want string) error {
	if v.isNull() {
		return nil
	}
	if json.Unmarshal([]byte(c.source[v.Start:v.End]), to) != nil {
		return c.invalidValue(v, want)
	}
	return nil
}

func (c *conf) decodeString(v value) (s string, err error) {
	err = c.decode(v, &s, "a string")
	return s, err
}

// members returns the members of a map; null has none.
func (c *conf) members(v value) ([]value, error) {
	if v.isNull() {
		return nil, nil
	}
	if v.Kind != jsontree.Object {
		return nil, c.invalidValue(v, "a map")
	}
	var list []value
	for _, n := range v.Children {
		list = append(list, value{v.path + "." + n.Key, n})
	}
	return list, nil
}

func (c *conf) readIPAM(v value) error {
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
		return c.Invalid("ipam.type", c.sourceOf(kind.Node), "the name of the IPAM plugin, because ipam has other keys"+diag.Suggest(list[other].Key, "type"))
	}
	// The plugin would run itself.
	own := ""
	if n := c.root.Member("type"); n != nil {
		own = n.Text
	}
	if name != "" && (name == own || strings.HasPrefix(name, "jackfield-")) {
		return attach.Fail(codeConfig, "invalid network configuration: ipam.type: "+diag.Quote(name), "%sinvalid value %s: must be an IPAM plugin, such as host-local",
			c.Place("ipam"), diag.Quote(name))
	}
	c.ipam = name
	return nil
}

func (c *conf) readDNS(v value) error {
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
	if err := c.decode(v, dns, "a map with nameservers, search and options, each a list of strings, and the string domain"); err != nil {
		return err
	}
	c.dns, err = c.checkDNS(dns, "dns.nameservers")
	return err
}

// checkDNS checks DNS settings. It returns nil for empty ones. key has the name servers.
func (c *conf) checkDNS(dns *types.DNS, key string) (*types.DNS, error) {
	for _, s := range dns.Nameservers {
		// A runtime passes the host's nameservers, which may have a zone: fe80::1%eth0.
		if _, err := netip.ParseAddr(s); err != nil {
			return nil, c.Invalid(key, diag.Quote(s), "IP addresses")
		}
	}
	if dns.IsEmpty() {
		return nil, nil
	}
	return dns, nil
}

func (c *conf) readIPMasq(v value) error {
	var on bool
	if err := c.decode(v, &on, "true or false"); err != nil {
		return err
	}
	if on {
		return c.Unsupported("packets of a userspace interface do not pass the host's firewall: masquerading is impossible", v.path)
	}
	return nil
}

func (c *conf) readPrevResult(v value) error {
	if !v.isNull() {
		c.prevResult = v.Node
	}
	return nil
}

func (c *conf) readValidAttachments(v value) error {
	c.validGiven = true // libcni writes null for an empty list
	const want = "a list of maps with containerID and ifname"
	if err := c.decode(v, &c.valid, want); err != nil {
		return err
	}
	for _, a := range c.valid {
		// An incomplete element would cause the removal of a living attachment.
		if a.ContainerID == "" || a.IfName == "" {
			return c.invalidValue(v, want+", neither of them empty")
		}
	}
	return nil
}

func (c *conf) readDeviceID(v value) error {
	id, err := c.decodeString(v)
	if err == nil && id != "" {
		c.DeviceIDs[v.path] = id
	}
	return err
}

func (c *conf) readDir(v value) error {
	dir, err := c.decodeString(v)
	if err != nil || dir == "" {
		return err
	}
	if hostfs.CheckPath(dir) != nil {
		return c.invalidValue(v, "an absolute path")
	}
	if path.Clean(dir) != dir {
		return c.invalidValue(v, "a path without //, /./, /../ and without / at the end, which is "+diag.Quote(path.Clean(dir)))
	}
	if reserved.IsShared(dir) || reserved.Tree(dir) != "" {
		return c.invalidValue(v, "a directory of its own, not one of the system")
	}
	c.chosen[v.Key] = dir
	return nil
}

// readLocation reads a size or file that checkLocations accepts later.
func (c *conf) readLocation(v value) error {
	if err := c.readValue(v); err != nil || v.isEmpty() {
		return err
	}
	c.chosen[v.Key] = v.Text
	return nil
}

// readDevice reads the key device: the keys of the device-info map of its type.
func (c *conf) readDevice(v value) error {
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
			return c.Unsupported("device-info of type "+kind+" has "+strings.Join(known, ", ")+diag.Suggest(m.Key, known...), m.path)
		default:
			if c.Device.Field[m.Key], err = c.decodeString(m); err != nil {
				return err
			}
		}
	}
	return c.CheckDevice()
}

// readValue reads a number or a text that package attach knows.
func (c *conf) readValue(v value) error {
	if v.isEmpty() {
		return nil
	}
	text := "" // invalid for each key
	isNumber := slices.Contains([]string{"mtu", "vlan", "queues"}, v.path)
	if v.Kind == jsontree.Number && (isNumber || v.path == "rate") || v.Kind == jsontree.String && !isNumber {
		text = v.Text
	}
	if want := c.SetValue(v.path, text); want != "" {
		return c.invalidValue(v, want)
	}
	return nil
}
