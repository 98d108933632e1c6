// SPDX-License-Identifier: Apache-2.0

package netavark

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/record"
)

// network is a network of Podman, with the keys that this plugin uses. Other keys are ignored.
type network struct {
	Name        string            `json:"name"`
	Driver      string            `json:"driver"`
	Interface   string            `json:"network_interface"`
	Options     options           `json:"options"`
	IPAMOptions map[string]string `json:"ipam_options"`
	Subnets     []subnet          `json:"subnets"`
	Routes      []*jsontree.Node  `json:"routes"`
	Internal    bool              `json:"internal"`
}

type subnet struct {
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway"`
}

// decode decodes standard input.
func decode(d jsontree.Decoder, data []byte, to any) error {
	if err := d.Unmarshal(string(data), to); err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	return nil
}

// checkName checks the name with the rule of CNI, because the name is a part of file names.
func (n *network) checkName() error {
	if utils.ValidateNetworkName(n.Name) != nil {
		return invalid("name", n.Name, "a letter or digit, then letters, digits, _ . and -")
	}
	return nil
}

// check rejects settings that a userspace interface cannot have.
func (n *network) check() error {
	const noInterface = "a userspace interface is not an interface of the kernel"
	switch {
	case n.Interface != "":
		return fmt.Errorf("--interface-name: invalid value %s: %s; name a bridge of the vswitch by --opt bridge=…",
			diag.Quote(n.Interface), noInterface)
	case n.Internal:
		return fmt.Errorf("--internal: %s, so its packets do not pass the host's firewall; isolate the network by "+
			"a bridge or a VLAN of the vswitch", noInterface)
	case len(n.Routes) > 0:
		return fmt.Errorf("--route: %s and takes no routes; the application routes", noInterface)
	}
	switch driver := n.IPAMOptions["driver"]; driver {
	case "", "host-local", "none":
	default:
		return fmt.Errorf("--ipam-driver: invalid value %s: must be host-local or none: %s", diag.Quote(driver),
			noInterface)
	}
	return nil
}

// planAddresses returns a container's addresses and gateways on the network, once for the
// attachment and once for the status that Podman reads.
func (n *network) planAddresses(ips []netip.Addr) (addresses attach.Addresses, statuses []addressStatus, err error) {
	statuses = []addressStatus{}
	for _, ip := range ips {
		i := slices.IndexFunc(n.Subnets, func(s subnet) bool { return s.Subnet.Contains(ip) })
		if i < 0 {
			return addresses, nil, fmt.Errorf("static_ips: invalid value %s: must be an address in a subnet of "+
				"the network", ip)
		}
		status := addressStatus{Address: netip.PrefixFrom(ip, n.Subnets[i].Subnet.Bits())}
		addresses.IPs = append(addresses.IPs, status.Address.String())
		if gateway := &n.Subnets[i].Gateway; gateway.IsValid() {
			status.Gateway = gateway
			addresses.Gateways = append(addresses.Gateways, gateway.String())
		}
		statuses = append(statuses, status)
	}
	return addresses, statuses, nil
}

// createNetwork is the command create: it checks a network of Podman and prints it.
func (p *Plugin) createNetwork(data []byte) error {
	var n network
	if err := decode(jsontree.Decoder{}, data, &n); err != nil {
		return err
	}
	var whole map[string]json.RawMessage // includes unknown keys
	if err := json.Unmarshal(data, &whole); err != nil {
		return err
	}
	if err := cmp.Or(n.checkName(), n.check()); err != nil {
		return err
	}
	// Plan for the longest possible names, so that a socket path that is too long is an error of
	// create.
	t := p.newAttachment(record.Key{Network: n.Name, ContainerID: strings.Repeat("f", 64),
		Interface: strings.Repeat("i", 15)}, n.Options)
	if err := n.Options.read(t); err != nil {
		return err
	}
	if err := p.locate(n.Options, t); err != nil {
		return err
	}
	if _, err := t.PlanSocket(); err != nil {
		return err
	}
	if err := t.CheckBridge(); err != nil {
		return err
	}
	whole["dns_enabled"] = json.RawMessage("false") // no name server reaches a userspace interface
	if len(n.Subnets) == 0 {
		whole["ipam_options"] = json.RawMessage(`{"driver":"none"}`)
	}
	return p.print(whole)
}
