// SPDX-License-Identifier: Apache-2.0

package network

import (
	"cmp"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// RuntimeConfig holds the runtime's requests through capabilities (conventions, Dynamic plugin
// specific fields).
type RuntimeConfig struct {
	MAC      string
	IPs      []string // <ip>[/<prefix>]
	IPRanges bool     // requested; the IPAM plugin reads them
	DNS      *types.DNS
}

// unsupportedCapabilities are the capabilities that this plugin cannot provide, with the reason.
var unsupportedCapabilities = map[string]string{
	"portMappings":   "packets of a userspace interface do not pass the host's firewall: mapping ports is impossible",
	"infinibandGUID": "this plugin creates no InfiniBand interface",
	"aliases":        "this plugin serves no names",
	"cgroupPath":     "this plugin does not use cgroups",
}

// readRuntimeConfig reads the values of capabilities. An empty value counts as none.
func (c *Config) readRuntimeConfig(v value) error {
	list, err := c.members(v)
	for _, m := range list {
		if err == nil && !m.isEmpty() {
			err = c.readCapability(m)
		}
	}
	return err
}

// readCapability reads the value of one capability. An unknown capability is an error, because the network
// requires it.
func (c *Config) readCapability(m value) (err error) {
	r := &c.Runtime
	// These are the capabilities of the CNI conventions, of Multus and of the Device Information Specification that
	// a userspace interface can have.
	switch m.Key {
	case deviceinfo.CapabilityKey:
		c.InfoFile, err = c.decodeString(m)
	case "deviceID", "pciBusID":
		err = c.readDeviceID(m)
	case "mac":
		r.MAC, err = c.decodeMAC(m)
	case "ips":
		r.IPs, err = c.decodeIPs(m)
	case "ipRanges":
		r.IPRanges = true
	case "dns":
		r.DNS, err = c.decodeRuntimeDNS(m)
	case "bandwidth":
		c.Bandwidth, err = c.decodeBandwidth(m)
	default:
		const unknown = "this plugin does not know the capability; remove it from the plugin's capabilities"
		err = c.Unsupported(cmp.Or(unsupportedCapabilities[m.Key], unknown), m.path)
	}
	return err
}

// decodeMAC decodes a hardware address, and returns it in lower case with colons.
func (c *Config) decodeMAC(m value) (string, error) {
	s, err := c.decodeString(m)
	if err != nil {
		return "", err
	}
	mac, rule := attachment.ParseMAC(s)
	if rule != "" {
		return "", c.invalidValue(m, rule)
	}
	return mac, nil
}

// decodeIPs decodes a list of addresses.
func (c *Config) decodeIPs(m value) ([]string, error) {
	const rule = "a list of IP addresses, each with or without its prefix length"
	var ips []string
	if err := c.decode(m, &ips, rule); err != nil {
		return nil, err
	}
	for _, ip := range ips {
		if !IsIP(ip) {
			return nil, c.Invalid(m.path, diag.Quote(ip), rule)
		}
	}
	return ips, nil
}

// decodeRuntimeDNS decodes the capability dns. Its keys differ from those of a result.
func (c *Config) decodeRuntimeDNS(m value) (*types.DNS, error) {
	var in struct {
		Servers  []string `json:"servers"`
		Searches []string `json:"searches"`
		Options  []string `json:"options"`
	}
	if err := c.decode(m, &in, "a map with servers, searches and options, each a list of strings"); err != nil {
		return nil, err
	}
	return c.checkDNS(&types.DNS{Nameservers: in.Servers, Search: in.Searches, Options: in.Options}, m.path+".servers")
}

// bandwidthKeys are the keys of the capability bandwidth. containerd writes them with a capital letter.
var bandwidthKeys = []string{"ingressRate", "ingressBurst", "egressRate", "egressBurst"}

// decodeBandwidth decodes the capability: rates in bits per second, bursts in bits. 0 is unlimited.
func (c *Config) decodeBandwidth(m value) (map[string]uint64, error) {
	list, err := c.members(m)
	if err != nil {
		return nil, err
	}
	limits := map[string]uint64{}
	for _, f := range list {
		at := slices.IndexFunc(bandwidthKeys, func(key string) bool { return strings.EqualFold(key, f.Key) })
		if at < 0 {
			return nil, c.Unsupported("the capability has "+strings.Join(bandwidthKeys, ", "), f.path)
		}
		var n uint64
		if err := c.decode(f, &n, "a number of bits, or of bits per second"); err != nil {
			return nil, err
		}
		if n > 0 {
			limits[bandwidthKeys[at]] = n
		}
	}
	return limits, nil
}
