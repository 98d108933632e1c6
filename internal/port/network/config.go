// SPDX-License-Identifier: Apache-2.0

package network

import (
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/utils"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Config is the configuration of one plugin of a network (§1, Plugin configuration objects, and §3,
// Deriving request configuration). ParseHeader creates it, ReadKeys reads its keys, and
// ApplyLocations checks its locations. Its Attachment holds the requests of the keys.
type Config struct {
	attach.Attachment
	document

	Version    string // of the specification
	IPAMType   string // "" for none
	IPAMFault  error  // fault of the key ipam, for DEL and GC
	DNS        *types.DNS
	Runtime    RuntimeConfig
	Args       ConventionalArgs
	PrevResult *jsontree.Node // nil for the first plugin of a network
	Valid      []types.GCAttachment
	ValidGiven bool

	chosen map[string]string // location keys with their values
}

// keys are the known keys of the configuration with their readers. A key that this plugin does not
// use has nil.
var keys = map[string]func(*Config, value) error{
	// Keys of the specification.
	"cniVersion":   nil,
	"name":         nil,
	"type":         nil,
	"capabilities": nil,
	"ipam":         (*Config).readIPAM,
	"dns":          (*Config).readDNS,
	"ipMasq":       (*Config).readIPMasq,
	"args":         (*Config).readArgs,
	"prevResult":   (*Config).readPrevResult,
	// Keys of the whole network. Runtimes that run a single plugin pass them as well.
	"cniVersions":            nil,
	"disableCheck":           nil,
	"disableGC":              nil,
	"loadOnlyInlinedPlugins": nil,
	// Keys of runtimes.
	"runtimeConfig":             (*Config).readRuntimeConfig,
	"cni.dev/valid-attachments": (*Config).readValidAttachments,
	// Keys of Multus and of this plugin.
	"deviceID":      (*Config).readDeviceID,
	"pciBusID":      (*Config).readDeviceID,
	"device":        (*Config).readDevice,
	"socketDir":     (*Config).readDir,
	"socketDirSize": (*Config).readLocation,
	"stateDir":      (*Config).readDir,
	"claimsDir":     (*Config).readDir,
	"deviceInfoDir": (*Config).readDir,
	"configFile":    (*Config).readLocation,
	"timeout":       (*Config).readValue,
	"vswitch":       func(c *Config, v value) error { return c.decode(v, &c.Port.Vswitch, "a string") },
	"bridge":        func(c *Config, v value) error { return c.decode(v, &c.Port.Bridge, "a string") },
	"mtu":           (*Config).readValue,
	"vlan":          (*Config).readValue,
	"queues":        (*Config).readValue,
	"rate":          (*Config).readValue,
}

// ParseObject parses one JSON object. what describes it in errors (code 6).
func ParseObject(what string, data []byte) (*jsontree.Node, error) {
	root, fault := jsontree.Parse(string(data))
	if fault == nil && root.Kind != jsontree.Object {
		fault = &diag.Diagnostic{Line: root.Line, Column: root.Column, Found: root.Kind.String(),
			Rule: "must be an object"}
	}
	if fault != nil {
		return nil, attach.Fail(types.ErrDecodingFailure, "failed to decode "+what, "line %d, column %d: %s",
			fault.Line, fault.Column, fault.Message())
	}
	return root, nil
}

// ParseHeader parses a configuration and checks its version and name, which must be valid before
// its other keys matter.
func ParseHeader(data []byte) (*Config, error) {
	root, err := ParseObject("the network configuration", data)
	if err != nil {
		return nil, err
	}
	c := &Config{document: document{string(data), root},
		Version: "0.1.0"} // the version of a configuration without a version
	c.Source = c
	for _, f := range []struct {
		key string
		to  *string
	}{{"name", &c.Network}, {"cniVersion", &c.Version}} {
		n := root.Member(f.key)
		if n == nil || n.Kind == jsontree.Null {
			continue
		}
		if n.Kind != jsontree.String {
			return c, attach.Fail(types.ErrDecodingFailure, "failed to decode the network configuration",
				"%s%s: invalid value %s: must be a string", c.Place(f.key), f.key, c.sourceOf(n))
		}
		*f.to = n.Text
	}
	if _, _, _, err := version.ParseVersion(c.Version); err != nil {
		return c, attach.Fail(types.ErrDecodingFailure, "failed to decode version info",
			"%scniVersion: invalid value %q: must be MAJOR.MINOR.PATCH", c.Place("cniVersion"), diag.Excerpt(c.Version,
				diag.MaxExcerpt))
	}
	return c, nil
}

// isOwnKey reports whether a key is neither of the CNI specification nor of its runtimes.
func isOwnKey(n *jsontree.Node) bool {
	return !strings.HasPrefix(n.Key, "cni.dev/") && !slices.Contains([]string{"cniVersion", "name", "type", "capabilities",
		"ipam", "dns", "args", "prevResult", "runtimeConfig"}, n.Key)
}

// ReadKeys reads the keys of the configuration. An unknown key is an error (code 2). permissive is
// set for DEL and GC: then only faults that prevent finding the attachment are errors.
func (c *Config) ReadKeys(permissive bool) error {
	c.SocketDir, c.StateDir = attach.DefaultSocketDir, attach.DefaultStateDir
	c.ClaimsDir, c.InfoDir = attach.DefaultClaimsDir, deviceinfo.DefaultCNIDir
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
			c.IPAMFault = err
		case !permissive || n.Key == "cni.dev/valid-attachments":
			return err
		}
	}
	if permissive {
		return nil
	}
	if len(unknown) > 0 {
		return c.Unsupported("neither the CNI specification, its runtimes, Multus nor this plugin defines it"+
			diag.Suggest(unknown[0], slices.Sorted(maps.Keys(keys))...), unknown...)
	}
	if c.root.Member("device") == nil {
		rule := `a map with the device's type, such as {"type": "vhost-user", "mode": "server"}`
		if !slices.ContainsFunc(c.root.Children, isOwnKey) {
			rule += "; there is no key of jackfield-cni at all: Multus 4.3 drops them where its clusterNetwork is the path of " +
				"a .conflist, so name the network there instead"
		}
		return c.Invalid("device", "nothing", rule)
	}
	return c.CheckPort()
}
