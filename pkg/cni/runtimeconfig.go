// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// runtimeConf is what the runtime asks for by capabilities (conventions, Dynamic
// plugin specific fields).
type runtimeConf struct {
	infoFile  string
	mac       string
	ips       []string // <ip>[/<prefix>]
	dns       *types.DNS
	bandwidth json.RawMessage
	asked     map[string]json.RawMessage // by key, as they came
}

// impossible are the capabilities that cannot be had, and why.
var impossible = map[string]string{
	"portMappings":   "a userspace interface's packets do not pass the host's firewall: no port can be mapped",
	"infinibandGUID": "this plugin makes no InfiniBand interface",
	"aliases":        "this plugin serves no names",
	"cgroupPath":     "this plugin does nothing in cgroups",
}

func (c *conf) readRuntimeConfig(v value) error {
	if v.isNull() {
		return nil
	}
	list, err := v.members()
	if err != nil {
		return err
	}
	c.runtime.asked = map[string]json.RawMessage{}
	for _, m := range list {
		if isEmpty(m.raw) {
			continue // nothing was asked for
		}
		if err := c.readCapability(m); err != nil {
			return err
		}
		c.runtime.asked[m.last()] = m.raw
	}
	return nil
}

func (c *conf) readCapability(m value) (err error) {
	r := &c.runtime
	switch name := m.last(); name {
	case deviceinfo.CapabilityKey:
		r.infoFile, err = m.text()
	case "deviceID", "pciBusID":
		err = c.readDeviceID(m)
	case "mac":
		r.mac, err = readMAC(m)
	case "ips":
		r.ips, err = readIPs(m)
	case "ipRanges": // the IPAM plugin's
	case "dns":
		r.dns, err = readRuntimeDNS(m)
	case "bandwidth":
		r.bandwidth, err = readBandwidth(m)
	default:
		why := impossible[name]
		if why == "" {
			why = "the capability is not one that this plugin knows; take it out of the plugin's capabilities"
		}
		err = unsupported(why, field{m.key, m.raw})
	}
	return err
}

// isEmpty reports whether a value asks for nothing.
func isEmpty(raw json.RawMessage) bool {
	switch string(bytes.Join(bytes.Fields(raw), nil)) {
	case "", "null", `""`, "[]", "{}":
		return true
	}
	return false
}

func readMAC(m value) (string, error) {
	s, err := m.text()
	if err != nil {
		return "", err
	}
	mac, want := parseMAC(s)
	if want != "" {
		return "", invalid(m.key, compact(m.raw), want)
	}
	return mac, nil
}

// parseMAC is a hardware address in its usual spelling, or what is wanted instead.
func parseMAC(s string) (mac, want string) {
	hw, err := net.ParseMAC(s)
	switch {
	case err != nil || len(hw) != 6:
		return "", "a hardware address of six bytes, as c2:11:22:33:44:55"
	case hw[0]&1 != 0:
		return "", "the address of one interface, not a multicast address"
	}
	return hw.String(), ""
}

func readIPs(m value) ([]string, error) {
	const want = "a list of IP addresses, each with or without its prefix length"
	var ips []string
	if err := m.into(&ips, want); err != nil {
		return nil, err
	}
	for _, ip := range ips {
		if !isIP(ip) {
			return nil, invalid(m.key, fmt.Sprintf("%q", short(ip)), want)
		}
	}
	return ips, nil
}

// readRuntimeDNS reads the capability, whose keys are not those of a result.
func readRuntimeDNS(m value) (*types.DNS, error) {
	var in struct {
		Servers  []string `json:"servers"`
		Searches []string `json:"searches"`
		Options  []string `json:"options"`
	}
	if err := m.into(&in, "a map with servers, searches and options, each a list of strings"); err != nil {
		return nil, err
	}
	if err := checkNameservers(m.key+".servers", in.Servers); err != nil {
		return nil, err
	}
	dns := &types.DNS{Nameservers: in.Servers, Search: in.Searches, Options: in.Options}
	if dns.IsEmpty() {
		return nil, nil
	}
	return dns, nil
}

func checkNameservers(key string, list []string) error {
	for _, s := range list {
		// A runtime hands the host's own on, which may have a zone: fe80::1%eth0.
		if _, err := netip.ParseAddr(s); err != nil {
			return invalid(key, fmt.Sprintf("%q", short(s)), "IP addresses")
		}
	}
	return nil
}

// readBandwidth checks the capability: rates in bits per second, bursts in bits.
func readBandwidth(m value) (json.RawMessage, error) {
	list, err := m.members()
	if err != nil {
		return nil, err
	}
	limits := map[string]uint64{}
	for _, f := range list {
		var n uint64
		switch f.last() {
		case "ingressRate", "ingressBurst", "egressRate", "egressBurst":
			if err := f.into(&n, "a number of bits, or of bits per second"); err != nil {
				return nil, err
			}
			if n > 0 {
				limits[f.last()] = n
			}
		default:
			return nil, unsupported("the capability has ingressRate, ingressBurst, egressRate and egressBurst", field{f.key, f.raw})
		}
	}
	if len(limits) == 0 {
		return nil, nil
	}
	return json.Marshal(limits)
}

// conventionalArgs is what args.cni may bring (conventions, "args" in network
// config). It is optional metadata: what cannot be read is left out.
type conventionalArgs struct {
	labels []label
	ips    []string
	mac    string
}

type label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

func (c *conf) readArgs(v value) error {
	var args struct {
		CNI map[string]json.RawMessage `json:"cni"`
	}
	if json.Unmarshal(v.raw, &args) != nil {
		return nil
	}
	var labels []label
	if json.Unmarshal(args.CNI["labels"], &labels) == nil {
		c.args.labels = labels
	}
	c.args.ips, _ = readIPs(value{"args.cni.ips", args.CNI["ips"]})
	c.args.mac, _ = readMAC(value{"args.cni.mac", args.CNI["mac"]})
	return nil
}
