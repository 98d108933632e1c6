// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/quantity"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	// DefaultSocketDir is the first of the node configuration's socket roots.
	DefaultSocketDir = "/var/run/jackfield/sockets"
	// DefaultStateDir holds the records of attachments. It goes with a reboot, as
	// everything that it tells of.
	DefaultStateDir = "/var/run/jackfield/cni"
	// DefaultClaimsDir is that of the node configuration's default stateDir, which the
	// NRI plugin and the OCI hook use.
	DefaultClaimsDir = "/var/run/jackfield/claims"
)

// conf is a plugin's configuration (§1, Plugin configuration objects, and §3,
// Deriving request configuration).
type conf struct {
	name, version string
	device        device
	deviceIDs     map[string]string // by key: where a device's ID was given
	socketDir     string
	stateDir      string
	claimsDir     string
	socketDirSize uint64 // bounds an attachment's directory; 0 for a plain directory
	infoDir       string
	ipam          string // type; "" for none
	ipamErr       error  // what is wrong with it, for what undoes
	dns           *types.DNS
	runtime       runtimeConf
	args          conventionalArgs
	prevResult    json.RawMessage // nil for the first plugin of a network
	valid         []types.GCAttachment
	validGiven    bool
}

// keys are those of the configuration, each with its reader. One that reads
// nothing is somebody else's: of the specification or of a runtime.
var keys = map[string]func(c *conf, v value) error{
	// The specification's.
	"cniVersion":   (*conf).nothing,
	"name":         (*conf).nothing,
	"type":         (*conf).nothing,
	"capabilities": (*conf).nothing,
	"ipam":         (*conf).readIPAM,
	"dns":          (*conf).readDNS,
	"ipMasq":       (*conf).readIPMasq,
	"args":         (*conf).readArgs,
	"prevResult":   (*conf).readPrevResult,
	// Of the whole network; a runtime that knows a single plugin only has them beside
	// the plugin's.
	"cniVersions":            (*conf).nothing,
	"disableCheck":           (*conf).nothing,
	"disableGC":              (*conf).nothing,
	"loadOnlyInlinedPlugins": (*conf).nothing,
	// Runtimes'.
	"runtimeConfig":             (*conf).readRuntimeConfig,
	"cni.dev/valid-attachments": (*conf).readValid,
	"cni.dev/attachments":       (*conf).nothing,
	// Multus' and the plugin's own.
	"deviceID":      (*conf).readDeviceID,
	"pciBusID":      (*conf).readDeviceID,
	"device":        (*conf).readDevice,
	"socketDir":     (*conf).readDir,
	"socketDirSize": (*conf).readSocketDirSize,
	"stateDir":      (*conf).readDir,
	"claimsDir":     (*conf).readDir,
	"deviceInfoDir": (*conf).readDir,
}

// value is a value of the configuration.
type value struct {
	key string // with dots
	raw json.RawMessage
}

func (v value) isNull() bool { return len(v.raw) == 0 || string(v.raw) == "null" }

func (v value) into(to any, want string) error {
	if err := json.Unmarshal(v.raw, to); err != nil {
		return invalid(v.key, short(compact(v.raw)), want)
	}
	return nil
}

func (v value) text() (s string, err error) {
	err = v.into(&s, "a string")
	return s, err
}

// members are the keys of a map and their values, sorted by key.
func (v value) members() ([]value, error) {
	var m map[string]json.RawMessage
	if err := v.into(&m, "a map"); err != nil {
		return nil, err
	}
	list := make([]value, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		name := k
		if v.key != "" {
			name = v.key + "." + k
		}
		list = append(list, value{key: name, raw: m[k]})
	}
	return list, nil
}

// last is the key without those around it.
func (v value) last() string { return v.key[strings.LastIndexByte(v.key, '.')+1:] }

// parseConf reads a configuration. A key that nothing defines is an error (code
// 2). permissive is for what undoes: of what is wrong there, only that without
// which nothing can be found is an error.
func parseConf(data []byte, permissive bool) (*conf, error) {
	c := &conf{socketDir: DefaultSocketDir, stateDir: DefaultStateDir, claimsDir: DefaultClaimsDir, infoDir: deviceinfo.DefaultCNIDir, deviceIDs: map[string]string{}}
	h, err := decodeHead(data)
	if err != nil {
		return nil, err
	}
	c.name, c.version = h.name, h.version
	var top map[string]json.RawMessage
	if err := json.Unmarshal(data, &top); err != nil {
		return nil, fail(codeDecode, "failed to decode the network configuration", "%s", jsonProblem(data, err))
	}
	var unknown []field
	for _, k := range slices.Sorted(maps.Keys(top)) {
		v := value{k, top[k]}
		read, known := keys[k]
		switch {
		case !known && strings.HasPrefix(k, "cni.dev/"): // reserved for the protocol
		case !known:
			unknown = append(unknown, field{k, v.raw})
		default:
			err := read(c, v)
			switch {
			case err == nil || permissive && skipped(k):
			case permissive && k == "ipam":
				c.ipamErr = err
			default:
				return nil, err
			}
		}
	}
	if permissive {
		return c, nil
	}
	if len(unknown) > 0 {
		return nil, unsupported("neither the CNI specification, its runtimes, Multus nor this plugin defines it", unknown...)
	}
	if _, ok := top["device"]; !ok {
		return nil, invalid("device", "nothing", `a map with the device's type, as {"type": "vhost-user", "mode": "server"}`)
	}
	return c, nil
}

// skipped says of which keys a wrong value does not keep a DEL from its work.
func skipped(key string) bool {
	switch key {
	case "stateDir", "ipam", "cni.dev/valid-attachments":
		return false
	}
	return true
}

func (c *conf) nothing(value) error { return nil }

func (c *conf) readIPAM(v value) error {
	if v.isNull() {
		return nil
	}
	var m map[string]json.RawMessage
	if err := v.into(&m, "a map"); err != nil {
		return err
	}
	raw, ok := m["type"]
	if !ok {
		return nil // "ipam": {} is how runtimes write that there is none
	}
	name, err := value{"ipam.type", raw}.text()
	if err != nil {
		return err
	}
	if strings.ContainsAny(name, `/\`) || name == "." || name == ".." {
		return invalid("ipam.type", compact(raw), "the name of a plugin's executable, without a path")
	}
	c.ipam = name
	return nil
}

func (c *conf) readDNS(v value) error {
	if v.isNull() {
		return nil
	}
	list, err := v.members()
	if err != nil {
		return err
	}
	dns := types.DNS{}
	for _, m := range list {
		switch m.last() {
		case "nameservers":
			err = m.into(&dns.Nameservers, "a list of IP addresses")
		case "domain":
			err = m.into(&dns.Domain, "a string")
		case "search":
			err = m.into(&dns.Search, "a list of strings")
		case "options":
			err = m.into(&dns.Options, "a list of strings")
		default:
			err = unsupported("the specification's dns has nameservers, domain, search and options", field{m.key, m.raw})
		}
		if err != nil {
			return err
		}
	}
	if err := checkNameservers("dns.nameservers", dns.Nameservers); err != nil {
		return err
	}
	if !dns.IsEmpty() {
		c.dns = &dns
	}
	return nil
}

func (c *conf) readIPMasq(v value) error {
	var on bool
	if v.isNull() {
		return nil
	}
	if err := v.into(&on, "true or false"); err != nil {
		return err
	}
	if on {
		return unsupported("a userspace interface's packets do not pass the host's firewall: nothing can be masqueraded", field{v.key, v.raw})
	}
	return nil
}

func (c *conf) readPrevResult(v value) error {
	if !v.isNull() {
		c.prevResult = v.raw
	}
	return nil
}

func (c *conf) readValid(v value) error {
	c.validGiven = true
	if v.isNull() {
		return nil // a list without elements, as libcni writes it
	}
	const want = "a list of maps with containerID and ifname"
	if err := v.into(&c.valid, want); err != nil {
		return err
	}
	for _, a := range c.valid {
		// One that names no attachment would have a living one removed.
		if a.ContainerID == "" || a.IfName == "" {
			return invalid(v.key, short(compact(v.raw)), want+", neither of them empty")
		}
	}
	return nil
}

func (c *conf) readDeviceID(v value) error {
	if v.isNull() {
		return nil
	}
	id, err := v.text()
	if err == nil && id != "" {
		c.deviceIDs[v.key] = id
	}
	return err
}

func (c *conf) readDir(v value) error {
	dir, err := v.text()
	if err != nil {
		return err
	}
	if dir == "" {
		return nil
	}
	if hostfs.CheckPath(dir) != nil || path.Clean(dir) != dir {
		return invalid(v.key, compact(v.raw), "a clean absolute path")
	}
	if why := sharedDir(dir); why != "" {
		return invalid(v.key, compact(v.raw), "a directory of its own: "+why)
	}
	switch v.key {
	case "socketDir":
		c.socketDir = dir
	case "stateDir":
		c.stateDir = dir
	case "deviceInfoDir":
		c.infoDir = dir
	}
	return nil
}

func (c *conf) readSocketDirSize(v value) error {
	text, err := v.text()
	if err != nil || text == "" {
		return err
	}
	size, ok := quantity.ParseSize(text)
	if !ok {
		return invalid(v.key, compact(v.raw), strings.TrimPrefix(quantity.Rule, "want "))
	}
	c.socketDirSize = size
	return nil
}

// sharedDir says why a directory is not one to make others in.
func sharedDir(dir string) string {
	switch dir {
	case "/", "/run", "/var", "/var/run", "/var/lib", "/tmp", "/var/tmp", "/home", "/root", "/boot":
		return dir + " belongs to the whole system"
	}
	for _, d := range []string{"/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64"} {
		if dir == d || strings.HasPrefix(dir, d+"/") {
			return dir + " is below " + d
		}
	}
	return ""
}
