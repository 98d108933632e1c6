// SPDX-License-Identifier: Apache-2.0

package netavark

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/utils"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// execution is the input of setup and teardown, with the keys that this plugin uses. It ignores
// port mappings, which belong to all of the container's networks, and aliases, which are for name
// servers.
type execution struct {
	ContainerID string  `json:"container_id"`
	Network     network `json:"network"`
	Options     struct {
		Interface string            `json:"interface_name"`
		StaticIPs []netip.Addr      `json:"static_ips"`
		StaticMAC string            `json:"static_mac"`
		Options   map[string]string `json:"options"`
	} `json:"network_options"`
}

// status is the result of setup. Podman requires empty lists instead of null.
type status struct {
	SearchDomains []string                   `json:"dns_search_domains"`
	ServerIPs     []string                   `json:"dns_server_ips"`
	Interfaces    map[string]interfaceStatus `json:"interfaces"`
}

type interfaceStatus struct {
	MAC     string          `json:"mac_address"`
	Subnets []addressStatus `json:"subnets"`
}

type addressStatus struct {
	Address netip.Prefix `json:"ipnet"`
	Gateway *netip.Addr  `json:"gateway"`
}

// parseExecution parses the input of setup and teardown and identifies the attachment.
func (p *Plugin) parseExecution(d jsontree.Decoder, data []byte, netns string) (*execution, *attach.Attachment, error) {
	e := &execution{}
	if err := decode(d, data, e); err != nil {
		return nil, nil, err
	}
	if err := utils.ValidateContainerID(e.ContainerID); err != nil || hostfs.CheckID(e.ContainerID) != nil {
		return nil, nil, invalid("container_id", e.ContainerID, "a letter or digit, then letters, digits, _ . and -")
	}
	if !name.IsInterface(e.Options.Interface) {
		return nil, nil, invalid("network_options.interface_name", e.Options.Interface, name.InterfaceRule)
	}
	if hostfs.CheckPath(netns) != nil {
		return nil, nil, invalid("network namespace", netns, "an absolute path")
	}
	if err := e.Network.checkName(); err != nil {
		return nil, nil, err
	}
	t := p.newAttachment(record.Key{Network: e.Network.Name, ContainerID: e.ContainerID,
		Interface: e.Options.Interface}, e.Network.Options)
	t.Netns = netns
	return e, t, nil
}

// setUp implements the command setup: it creates the attachment and prints its addresses.
func (p *Plugin) setUp(ctx context.Context, data []byte, netns string) error {
	e, t, err := p.parseExecution(jsontree.Decoder{}, data, netns)
	if err != nil {
		return err
	}
	if err := e.Network.check(); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(e.Options.Options)) {
		return fmt.Errorf("--network %s:%s: networks of this driver have no option for a single container",
			e.Network.Name, diag.Quote(key))
	}
	if mac := e.Options.StaticMAC; mac != "" {
		var rule string
		if t.MAC, rule = attachment.ParseMAC(mac); rule != "" {
			return invalid("network_options.static_mac", mac, rule)
		}
	}
	addresses, statuses, err := e.Network.planAddresses(e.Options.StaticIPs)
	if err != nil {
		return err
	}
	if err := e.Network.Options.read(t); err != nil {
		return err
	}
	if err := p.locate(e.Network.Options, t); err != nil {
		return err
	}
	// Podman sets up a container's interface once, so an existing record is a leftover.
	if err := t.RemoveLeftovers(ctx); err != nil {
		return err
	}
	t.RemoveUnrecordedPorts(ctx)
	allocate := func(context.Context) (attach.Addresses, error) { return addresses, nil }
	return t.Add(ctx, allocate, func(*deviceinfo.Info) error {
		i := interfaceStatus{MAC: t.MAC, Subnets: statuses}
		return p.print(status{[]string{}, []string{}, map[string]interfaceStatus{e.Options.Interface: i}})
	})
}

// tearDown implements the command teardown: it removes the attachment. The record lists the objects
// to remove, so a network that has become invalid, or a duplicate key, does not matter. Only the
// user's configuration may locate a user's records.
func (p *Plugin) tearDown(ctx context.Context, data []byte, netns string) error {
	e, t, err := p.parseExecution(jsontree.Decoder{AcceptDuplicates: true}, data, netns)
	if err != nil {
		return err
	}
	_ = e.Network.Options.read(t)
	if err := p.locate(e.Network.Options, t); err != nil {
		if _, inside := hostfs.UserNamespace(); inside {
			return err
		}
	}
	return t.Remove(ctx)
}
