// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"net"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
)

// runtimeConf is the runtime's request through capabilities (conventions, Dynamic plugin specific fields).
type runtimeConf struct {
	mac      string
	ips      []string // <ip>[/<prefix>]
	ipRanges bool     // requested; the IPAM plugin reads them
	dns      *types.DNS
}

// unsupportedCapabilities are the capabilities that cannot be provided, with the reason.
var unsupportedCapabilities = map[string]string{
	"portMappings":   "packets of a userspace interface do not pass the host's firewall: mapping ports is impossible",
	"infinibandGUID": "this plugin creates no InfiniBand interface",
	"aliases":        "this plugin serves no names",
	"cgroupPath":     "this plugin does not use cgroups",
}

func (c *conf) readRuntimeConfig(v value) error {
	list, err := c.members(v)
	for _, m := range list {
		if err == nil && !m.isEmpty() {
			err = c.readCapability(m)
		}
	}
	return err
}

func (c *conf) readCapability(m value) (err error) {
	r := &c.runtime
	switch m.Key {
	case deviceinfo.CapabilityKey:
		c.InfoFile, err = c.decodeString(m)
	case "deviceID", "pciBusID":
		err = c.readDeviceID(m)
	case "mac":
		r.mac, err = c.decodeMAC(m)
	case "ips":
		r.ips, err = c.decodeIPs(m)
	case "ipRanges":
		r.ipRanges = true
	case "dns":
		r.dns, err = c.decodeRuntimeDNS(m)
	case "bandwidth":
		c.Bandwidth, err = c.decodeBandwidth(m)
	default:
		const unknown = "this plugin does not know the capability; remove it from the plugin's capabilities"
		err = c.Unsupported(cmp.Or(unsupportedCapabilities[m.Key], unknown), m.path)
	}
	return err
}

func (c *conf) decodeMAC(m value) (string, error) {
	s, err := c.decodeString(m)
	if err != nil {
		return "", err
	}
	mac, want := attachment.ParseMAC(s)
	if want != "" {
		return "", c.invalidValue(m, want)
	}
	return mac, nil
}

func (c *conf) decodeIPs(m value) ([]string, error) {
	const want = "a list of IP addresses, each with or without its prefix length"
	var ips []string
	if err := c.decode(m, &ips, want); err != nil {
		return nil, err
	}
	for _, ip := range ips {
		if !isIP(ip) {
			return nil, c.Invalid(m.path, diag.Quote(ip), want)
		}
	}
	return ips, nil
}

// decodeRuntimeDNS decodes the capability dns. Its keys differ from those of a result.
func (c *conf) decodeRuntimeDNS(m value) (*types.DNS, error) {
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

// decodeBandwidth decodes the capability: rates in bits per second, bursts in bits. 0 is no limit.
func (c *conf) decodeBandwidth(m value) (map[string]uint64, error) {
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

// conventionalArgs is args.cni (conventions, "args" in network config). It is optional metadata: invalid values
// are ignored.
type conventionalArgs struct {
	ips []string
	mac string
}

func (c *conf) readArgs(v value) error {
	args := v.member("cni")
	var labels []devices.Label
	if c.decode(args.member("labels"), &labels, "") == nil {
		c.Labels = labels
	}
	c.args.ips, _ = c.decodeIPs(args.member("ips"))
	c.args.mac, _ = c.decodeMAC(args.member("mac"))
	return nil
}

// kubernetesArgs are the keys of CNI_ARGS that Kubernetes' runtimes and Multus set.
var kubernetesArgs = []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_INFRA_CONTAINER_ID", "K8S_POD_UID"}

// cniArgs are the arguments of CNI_ARGS that this plugin uses.
type cniArgs struct {
	namespace, pod string
	ips            []string // IP: <ip>[/<prefix>], comma-separated as for the IPAM plugin static
	mac            string   // MAC
}

// parseArgs parses CNI_ARGS (conventions, CNI_ARGS): pairs separated by semicolons. An unknown key is an error
// unless IgnoreUnknown is set.
func (p *Plugin) parseArgs() (cniArgs, error) {
	var (
		a       cniArgs
		ignore  types.UnmarshallableBool
		unknown []string
	)
	bad := func(pair, want string) (cniArgs, error) {
		return a, p.environment("CNI_ARGS", want+"; found "+diag.Excerpt(pair, diag.MaxExcerpt))
	}
	for pair := range strings.SplitSeq(p.getenv("CNI_ARGS"), ";") {
		if pair == "" {
			continue
		}
		key, v, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return bad(pair, "KEY=VALUE pairs separated by semicolons")
		}
		switch {
		case key == "IgnoreUnknown":
			if ignore.UnmarshalText([]byte(v)) != nil {
				return bad(pair, "IgnoreUnknown=true or false")
			}
		case key == "K8S_POD_NAMESPACE":
			if a.namespace = v; v != "" && !name.IsLabel(v) {
				return bad(pair, "K8S_POD_NAMESPACE with the name of a namespace")
			}
		case key == "K8S_POD_NAME":
			a.pod = v
		case key == "IP":
			a.ips = nil
			if v != "" {
				a.ips = strings.Split(v, ",")
			}
		case key == "MAC":
			a.mac = v
		case !slices.Contains(kubernetesArgs, key):
			unknown = append(unknown, pair)
		}
	}
	if len(unknown) > 0 && !bool(ignore) {
		return bad(strings.Join(unknown, ";"), "only known keys, or IgnoreUnknown=true")
	}
	for _, ip := range a.ips {
		if !isIP(ip) {
			return bad("IP="+ip, "comma-separated IP addresses, with or without prefix length")
		}
	}
	if a.mac != "" {
		mac, want := attachment.ParseMAC(a.mac)
		if want != "" {
			return bad("MAC="+a.mac, want)
		}
		a.mac = mac
	}
	return a, nil
}

// isIP reports whether s is <ip>[/<prefix>].
func isIP(s string) bool {
	if strings.Contains(s, "/") {
		_, _, err := net.ParseCIDR(s)
		return err == nil
	}
	return net.ParseIP(s) != nil
}
