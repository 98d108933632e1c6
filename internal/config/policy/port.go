// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
)

// Port is a vswitch port that a container's network requests.
type Port struct {
	// Switch is the vswitch's name in the node's configuration.
	Switch string `json:"switch"`
	// Bridge is the bridge, domain or bridge domain; "" for none.
	Bridge string `json:"bridge"`
	// VLAN is 1 to 4094, or 0 for an untagged port. On Open vSwitch an untagged port is a trunk of
	// all VLANs.
	VLAN int `json:"vlan"`
}

// String returns the port as VSWITCH/BRIDGE, or as VSWITCH/BRIDGE:VLAN.
func (p Port) String() string {
	s := p.Switch + "/" + p.Bridge
	if p.VLAN != 0 {
		s += ":" + strconv.Itoa(p.VLAN)
	}
	return s
}

// UnmarshalText parses the format of String. Policy.Port checks the names and the number.
func (p *Port) UnmarshalText(text []byte) error {
	port, vlan, tagged := strings.Cut(string(text), ":")
	vswitch, bridge, ok := strings.Cut(port, "/")
	number, err := strconv.Atoi(vlan)
	if !ok || tagged && err != nil {
		return fmt.Errorf("invalid value %q: must be VSWITCH/BRIDGE or VSWITCH/BRIDGE:VLAN", text)
	}
	*p = Port{Switch: vswitch, Bridge: bridge, VLAN: number}
	return nil
}

// PortPattern is a pattern of ports in a rule.
type PortPattern struct {
	// Port is a pattern of names, switch/bridge.
	Port string
	// VLANs are numbers and ranges, such as "300" and "100-199". With VLANs, a rule does not allow
	// an untagged port, and denies it, because the port can carry every VLAN. Without VLANs, the
	// pattern matches every VLAN and untagged ports.
	VLANs []string
}

// Port decides on a port of a vswitch. Ports are created before containers, so only the subject's
// namespace and pod are used. The error is a *RefusedError.
func (p *Policy) Port(s Subject, port Port) (Grant, error) {
	s = portSubject(s)
	return p.decide(&s, &item{kind: kindPort, name: port.Switch + "/" + port.Bridge, vlan: port.VLAN})
}

// portSubject returns the properties of a pod that are known when its ports are created.
func portSubject(s Subject) Subject {
	return Subject{Namespace: s.Namespace, Pod: s.Pod, LabelsUnknown: true, HandlerUnknown: true,
		Explanations: s.Explanations}
}

// isValidPort reports whether a name is one switch and at most one bridge. A longer name could
// match the patterns of other switches.
func isValidPort(name string, vlan int) bool {
	return strings.Count(name, "/") == 1 && name[0] != '/' && vlan >= 0 && vlan <= maxVLAN
}

// maxVLAN is the highest VLAN of IEEE 802.1Q.
const maxVLAN = 4094

// vlanRange is an inclusive range of VLANs.
type vlanRange struct{ first, last int }

// compilePort compiles a pattern of ports, and rejects one that no port can match.
func compilePort(pattern string) (glob.Glob, error) {
	if strings.Count(pattern, "/") > 1 || !strings.Contains(pattern, "*") && !isValidPort(pattern, 0) {
		return glob.Glob{}, errors.New("must be vswitch/bridge, with * for any characters")
	}
	return glob.CompileName(pattern)
}

// parseVLANs parses a number or a range of VLANs.
func parseVLANs(text string) (vlanRange, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	a, errA := strconv.ParseUint(first, 10, 16)
	b, errB := strconv.ParseUint(last, 10, 16)
	if errA != nil || errB != nil || a < 1 || b > maxVLAN || a > b {
		return vlanRange{}, fmt.Errorf(`must be a VLAN from 1 to %d, or a range such as "100-199"`, maxVLAN)
	}
	return vlanRange{int(a), int(b)}, nil
}

// compilePorts compiles the ports of a rule's allow or deny.
func (f *faults) compilePorts(field string, ports []PortPattern) []pattern {
	var all []pattern
	for i, port := range ports {
		at := fmt.Sprintf("%s[%d]", field, i)
		p := pattern{text: port.formatYAML(), name: f.compile(at, port.Port, compilePort)}
		for j, text := range port.VLANs {
			vlans, err := parseVLANs(text)
			if err != nil {
				f.addFault(fmt.Sprintf("%s.vlans[%d]", at, j), diag.Quote(text), err.Error())
			}
			p.vlans = append(p.vlans, vlans)
		}
		all = append(all, p)
	}
	return all
}

// formatYAML returns the pattern as an entry of a rule's list.
func (p PortPattern) formatYAML() string {
	if len(p.VLANs) == 0 {
		return strconv.Quote(p.Port)
	}
	vlans := make([]string, len(p.VLANs))
	for i, v := range p.VLANs {
		vlans[i] = v
		if strings.Contains(v, "-") {
			vlans[i] = strconv.Quote(v)
		}
	}
	return "{port: " + strconv.Quote(p.Port) + ", vlans: [" + strings.Join(vlans, ", ") + "]}"
}

// matchesVLAN reports whether the pattern covers the VLAN.
func (p *pattern) matchesVLAN(vlan int) bool {
	return p.vlans == nil || slices.ContainsFunc(p.vlans,
		func(r vlanRange) bool { return r.first <= vlan && vlan <= r.last })
}
