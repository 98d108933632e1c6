// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/schema"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// VswitchType is the program behind a vswitch, which determines the protocol of its endpoint.
type VswitchType string

// The types of vswitches.
const (
	VswitchOVS   VswitchType = "ovs"
	VswitchGrout VswitchType = "grout"
	VswitchVPP   VswitchType = "vpp"
)

// Vswitch is a virtual switch on which Jackfield creates ports.
type Vswitch struct {
	// Name is the name in networks and policy rules.
	Name string
	Type VswitchType
	// Endpoint is the host path of the switch's control socket.
	Endpoint string
	// Bridges are the bridges, domains or bridge domains on which ports can be created.
	Bridges []string
	// Defaults apply to properties that the network does not set.
	Defaults VswitchDefaults
	// Grcli is the host path of grout's command; "" for other types.
	Grcli string
	// Uplink is VPP's interface that carries the ports' VLANs; "" for none, and for other types.
	Uplink string
	// SocketDir is the host directory in which Open vSwitch creates the sockets of ports on which
	// it listens; "" for the directory of Endpoint.
	SocketDir string
}

// VswitchDefaults are the defaults of a vswitch's ports. For zero values the switch chooses.
type VswitchDefaults struct {
	Bridge      string
	MTU, Queues int
}

// Vswitch returns the vswitch with the given name. ok is false if the configuration does not have
// it.
func (c *Config) Vswitch(name string) (v Vswitch, ok bool) {
	i := slices.IndexFunc(c.Vswitches, func(v Vswitch) bool { return v.Name == name })
	if i < 0 {
		return Vswitch{}, false
	}
	return c.Vswitches[i], true
}

// FindBridge returns the bridge of a port: the given one, or the vswitch's default for "". The
// error is errdefs.ErrNotFound if the configuration lacks the vswitch, or the vswitch lacks the
// bridge.
func (c *Config) FindBridge(vswitch, bridge string) (string, error) {
	v, ok := c.Vswitch(vswitch)
	if !ok {
		return bridge, fmt.Errorf("vswitch %s is not in the configuration: add it to vswitches: %w",
			diag.Quote(vswitch), errdefs.ErrNotFound)
	}
	bridge = cmp.Or(bridge, v.Defaults.Bridge)
	if bridge != "" && !slices.Contains(v.Bridges, bridge) {
		return bridge, fmt.Errorf("vswitch %s has no bridge %s in the configuration: add it to "+
			"vswitches.%s.bridges%s: %w",
			diag.Quote(vswitch), diag.Quote(bridge), vswitch, diag.Suggest(bridge, v.Bridges...), errdefs.ErrNotFound)
	}
	return bridge, nil
}

// endpoints are the default paths of the switches' control sockets.
var endpoints = map[VswitchType]string{
	VswitchOVS: "/run/openvswitch/db.sock", VswitchGrout: "/run/grout.sock", VswitchVPP: "/run/vpp/api.sock",
}

const defaultGrcli = "/usr/bin/grcli"

// The bounds of a port's MTU, which are IPv4's, and of its queue pairs.
const (
	minMTU, maxMTU = 68, 65535
	maxQueues      = 256
)

func (d decoder) readVswitches(into *[]Vswitch) schema.Reader {
	first := make(map[string]string) // the field of each name
	return schema.Items(d.Decoder, into, func(at string, element *jsontree.Node, v *Vswitch) {
		ok := d.ReadObject(at, element,
			schema.Key("name", d.Text(&v.Name, switchName)),
			schema.Key("type", schema.Enum(d.Decoder, &v.Type, VswitchOVS, VswitchGrout, VswitchVPP)),
			schema.Key("endpoint", d.Text(&v.Endpoint, socketPath)),
			schema.Key("bridges", d.Texts(&v.Bridges, switchName)),
			schema.Key("defaults", d.Section(
				schema.Key("bridge", d.Text(&v.Defaults.Bridge, switchName)),
				schema.Key("mtu", d.Number(&v.Defaults.MTU, minMTU, maxMTU, "")),
				schema.Key("queues", d.Number(&v.Defaults.Queues, 1, maxQueues, "")),
			)),
			schema.Key("grcli", d.Text(&v.Grcli, absolute)),
			schema.Key("uplink", d.Text(&v.Uplink, interfaceOfVPP)),
			schema.Key("socketDir", d.Text(&v.SocketDir, absolute)),
		)
		if ok {
			d.checkVswitch(at, element, v, first)
		}
		v.Endpoint = cmp.Or(v.Endpoint, endpoints[v.Type])
		if v.Grcli == "" && v.Type == VswitchGrout {
			v.Grcli = defaultGrcli
		}
	})
}

// checkVswitch checks rules that involve several keys. first holds the field of each name so far.
func (d decoder) checkVswitch(at string, element *jsontree.Node, v *Vswitch, first map[string]string) {
	fault := func(key, found, rule string) {
		field := jsontree.JoinPath(at, key)
		d.AddFault(field, d.NodeOf(field, element), found, rule)
	}
	switch {
	case v.Name == "":
		fault("name", "nothing", "a vswitch has a name and a type")
	case v.Type == "":
		fault("type", "nothing", "a vswitch has a name and a type")
	}
	if other, twice := first[v.Name]; twice {
		fault("name", diag.Quote(v.Name), other+" has this name already")
	} else {
		first[v.Name] = at
	}
	if bridge := v.Defaults.Bridge; bridge != "" && !slices.Contains(v.Bridges, bridge) {
		fault("defaults.bridge", diag.Quote(bridge), "must be one of bridges"+diag.Suggest(bridge, v.Bridges...))
	}
	if v.Grcli != "" && v.Type != VswitchGrout {
		fault("grcli", diag.Quote(v.Grcli), "only a vswitch of type grout has it")
	}
	if v.Uplink != "" && v.Type != VswitchVPP {
		fault("uplink", diag.Quote(v.Uplink), "only a vswitch of type vpp has it")
	}
	if v.SocketDir != "" && v.Type != VswitchOVS {
		fault("socketDir", diag.Quote(v.SocketDir), "only a vswitch of type ovs has it")
	}
}

// interfaceOfVPP requires the name of an interface of VPP, such as TenGigabitEthernet3/0/0. A
// sub-interface, whose name has a dot, is invalid.
func interfaceOfVPP(s string) string {
	ok := s != "" && len(s) <= maxSwitchName && strings.Trim(s, lettersAndDigits+"/_:-") == ""
	return require(ok, fmt.Sprintf("must be the name of an interface of VPP: 1 to %d letters, digits, '/', "+
		"'_', ':', '-'", maxSwitchName))
}

// maxSwitchName exceeds the length of a Linux interface's name, and of any bridge's.
const maxSwitchName = 63

const lettersAndDigits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// switchName requires the name of a vswitch or bridge, which policy rules join with "/".
func switchName(s string) string {
	ok := len(s) <= maxSwitchName && strings.Trim(s, lettersAndDigits+"._-") == "" &&
		strings.ContainsAny(s, lettersAndDigits)
	return require(ok, fmt.Sprintf("must be 1 to %d letters, digits, '.', '_', '-', not all of them punctuation",
		maxSwitchName))
}

// readPortRule decodes a port, which is a pattern or an object.
func (d decoder) readPortRule(at string, element *jsontree.Node, p *policy.PortPattern) {
	if element.Kind != jsontree.Object {
		d.Text(&p.Port, notEmpty)(at, element)
		return
	}
	ok := d.ReadObject(at, element,
		schema.Key("port", d.Text(&p.Port, notEmpty)),
		schema.Key("vlans", d.readVLANs(&p.VLANs)),
	)
	if p.Port == "" && ok {
		d.AddFault(at+".port", element, "nothing", "an object has port, a pattern of vswitch/bridge")
	}
}

// readVLANs decodes a list of VLANs: numbers, and strings such as "100-199". internal/config/policy checks the bounds.
func (d decoder) readVLANs(into *[]string) schema.Reader {
	return func(field string, node *jsontree.Node) {
		d.ReadList(field, node, func(at string, element *jsontree.Node) {
			if element.Kind == jsontree.Number {
				*into = append(*into, element.Text)
				return
			}
			if s, ok := d.ReadText(at, element, notEmpty); ok {
				*into = append(*into, s)
			}
		})
	}
}
