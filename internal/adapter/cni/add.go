// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
)

// addAttachment implements ADD (§2).
func (c *call) addAttachment() error {
	args, err := c.parseArgs()
	if err != nil {
		return err
	}
	if c.conf.PrevResult != nil {
		if c.conf.IPAMType != "" {
			return c.conf.Unsupported("after another plugin this one adds neither an interface nor addresses: the "+
				"first plugin does", "ipam")
		}
		if c.prev, err = c.parsePrevResult(); err != nil {
			return err
		}
	}
	// The checks come before LimitTime and Add: they change nothing, so a refused ADD needs no DEL.
	if err := c.checkNamespace(c.prev == nil); err != nil {
		return err
	}
	if err := c.planAddresses(args); err != nil {
		return err
	}
	if err := c.checkInfoFileName(args); err != nil {
		return err
	}
	t := &c.conf.Attachment
	t.Namespace, t.Pod, t.Chained = args.namespace, args.pod, c.prev != nil
	t.IPAM = c.recordedIPAM()
	ctx, cancel := t.LimitTime(c.ctx)
	defer cancel()
	c.ctx = ctx // also bounds the undoing of IPAM
	var result *types100.Result
	// Add runs allocate between its own steps: after it has recorded the attachment, so that an interrupted ADD
	// leaves no address that DEL cannot find.
	allocate := func(ctx context.Context) (addresses attach.Addresses, err error) {
		if result, err = c.newResult(ctx); err != nil {
			return addresses, err
		}
		return c.addressesOf(result), nil
	}
	return t.Add(ctx, allocate, func(info *deviceinfo.Info) error {
		if c.prev == nil {
			result.Interfaces = []*types100.Interface{c.newInterface(info, c.conf.MAC)}
		}
		return c.printResult(result)
	})
}

// checkNamespace checks the container's network namespace. The interface of the network's first plugin must
// not exist yet. A userspace interface never appears there, but its name is used afterwards.
func (c *call) checkNamespace(first bool) error {
	ns, own, err := c.openNetns()
	if err != nil {
		return err
	}
	defer ns.Close()
	if !first {
		return nil
	}
	name := c.conf.Interface
	has, err := hasInterface(ns, own, name)
	if err != nil {
		return err
	}
	if has {
		return attach.Fail(codeExists, "interface "+name+" of the container already exists",
			"CNI_NETNS=%q has an interface %q", c.conf.Netns, name)
	}
	return nil
}

// parsePrevResult returns the result of the previous plugin.
func (c *call) parsePrevResult() (*types100.Result, error) {
	n := c.conf.PrevResult
	r, err := parseResult(n, []byte(c.conf.Text[n.Start:n.End]), c.version)
	if err != nil {
		return nil, attach.Fail(codeDecode, "failed to decode prevResult", "%sprevResult: %s",
			c.conf.Place("prevResult"), diag.Excerpt(decodeProblem(err), diag.MaxExcerpt))
	}
	return r, nil
}

// maxIPs bounds the addresses that each source can request. A pod's author can set args and CNI_ARGS, and each
// requested address is compared with each address of the result.
const maxIPs = 64

// checkIPCount returns an error for more than maxIPs addresses from one source.
func (c *call) checkIPCount(args cniArgs) error {
	for _, source := range []struct {
		key string
		ips []string
	}{{"runtimeConfig.ips", c.conf.Runtime.IPs}, {"args.cni.ips", c.conf.Args.IPs}} {
		if n := len(source.ips); n > maxIPs {
			return attach.Fail(codeConfig, "invalid network configuration: "+source.key,
				"%s%s: too many IP addresses (%d): at most %d", c.conf.Source.Place(source.key), source.key, n, maxIPs)
		}
	}
	if n := len(args.ips); n > maxIPs {
		return attach.Fail(codeEnvironment, "invalid environment variable CNI_ARGS",
			"CNI_ARGS: too many IP addresses (%d): at most %d", n, maxIPs)
	}
	return nil
}

// planAddresses plans hardware and IP addresses that do not come from IPAM. It returns an error for a request that
// this plugin cannot fulfil.
func (c *call) planAddresses(args cniArgs) error {
	if err := c.checkIPCount(args); err != nil {
		return err
	}
	socket := c.conf.Device.IsSocket()
	switch r := &c.conf.Runtime; {
	case r.MAC != "" && !socket:
		return c.conf.Unsupported("the hardware address of a "+string(c.conf.Device.Kind)+
			" device is set by the plugin that configures the device, not by this one", "runtimeConfig.mac")
	case len(c.conf.Bandwidth) > 0 && !socket:
		return c.conf.Unsupported("this plugin does not limit the bandwidth of a "+string(c.conf.Device.Kind)+
			" device", "runtimeConfig.bandwidth")
	case r.IPRanges && c.conf.IPAMType == "":
		return c.conf.Unsupported("there is no ipam plugin that could allocate from them", "runtimeConfig.ipRanges")
	case c.prev != nil && len(r.IPs) > 0:
		if ip := missingAddress(r.IPs, c.prev); ip != "" {
			return c.conf.Unsupported("the previous plugins did not assign "+ip+
				" to the interface, and this plugin assigns none after them", "runtimeConfig.ips")
		}
	}
	c.conf.MAC = c.conf.Runtime.MAC
	if c.prev != nil {
		// Every plugin of the network receives CNI_ARGS and args. They are meant for the first plugin, which
		// creates the interface.
		return nil
	}
	if socket {
		c.conf.MAC = cmp.Or(c.conf.MAC, c.conf.Args.MAC, args.mac)
	} else if args.mac != "" && c.conf.Args.MAC == "" {
		return c.environment("CNI_ARGS", "must not have MAC for a "+string(c.conf.Device.Kind)+
			" device, whose address this plugin cannot set")
	}
	if c.ips = c.conf.Args.IPs; c.ips == nil {
		c.ips = args.ips
	}
	if c.conf.IPAMType != "" {
		return nil
	}
	const rule = "an address with its prefix length (such as 10.10.0.1/24), because there is no ipam"
	for _, ip := range c.conf.Runtime.IPs {
		if _, _, err := net.ParseCIDR(ip); err != nil {
			return c.conf.Invalid("runtimeConfig.ips", diag.Quote(ip), rule)
		}
	}
	if c.conf.Args.IPs != nil {
		return nil
	}
	for _, ip := range args.ips {
		if _, _, err := net.ParseCIDR(ip); err != nil {
			return c.environment("CNI_ARGS", "IP must be "+rule)
		}
	}
	return nil
}

// checkInfoFileName checks that the attachment's names fit the name of a device-info file. Its error is about the name
// that does not fit.
func (c *call) checkInfoFileName(args cniArgs) error {
	if _, err := deviceinfo.CNIFileName("n", "n", "c", c.conf.Interface); err != nil ||
		!utf8.ValidString(c.conf.Interface) {
		return c.environment("CNI_IFNAME", "must be a name in UTF-8 without control characters, because files are "+
			"named after it")
	}
	if c.conf.InfoFile != "" {
		return nil
	}
	key := c.conf.Key
	_, err := attach.InfoFileName(key, args.namespace)
	if err == nil {
		return nil
	}
	key.ContainerID = "c"
	if _, err := attach.InfoFileName(key, args.namespace); err != nil {
		return attach.Fail(codeConfig, "invalid network configuration: name",
			"cannot derive the name of the device-info file: %v",
			err)
	}
	return c.environment("CNI_CONTAINERID", fmt.Sprintf("must be a shorter ID: the device-info file is named "+
		"after it and "+
		"network %q, with at most 255 bytes", c.conf.Network))
}

// newResult returns the result of ADD: the previous plugin's, or a new one with the addresses of the interface.
func (c *call) newResult(ctx context.Context) (*types100.Result, error) {
	r := c.prev
	switch {
	case r != nil:
	case c.conf.IPAMType != "":
		leased, err := c.allocateAddresses(ctx)
		if err != nil {
			return nil, err
		}
		r = &types100.Result{IPs: leased.IPs, Routes: leased.Routes, DNS: leased.DNS}
	default:
		r = &types100.Result{IPs: staticAddresses(slices.Concat(c.conf.Runtime.IPs, c.ips))}
	}
	if c.prev == nil {
		for _, ip := range r.IPs {
			ip.Interface = types100.Int(0)
		}
	}
	if dns := cmp.Or(c.conf.Runtime.DNS, c.conf.DNS); dns != nil {
		r.DNS = *dns
	}
	return r, nil
}

// staticAddresses returns the requested addresses of a network without an IPAM plugin, without duplicates. It omits
// addresses without a prefix length, which are optional metadata at this point.
func staticAddresses(requested []string) (ips []*types100.IPConfig) {
	for _, w := range requested {
		address, err := types.ParseCIDR(w)
		if err == nil && missingAddress([]string{w}, &types100.Result{IPs: ips}) != "" {
			ips = append(ips, &types100.IPConfig{Address: *address})
		}
	}
	return ips
}

// addressesOf returns the addresses for the device-info file and devices.json.
func (c *call) addressesOf(r *types100.Result) (addresses attach.Addresses) {
	own := 0
	if c.prev != nil {
		own = c.interfaceOf(r)
	}
	for _, ip := range r.IPs {
		// After other plugins, addresses belong to the kernel interface. The device also has the addresses that
		// the runtime requested from this plugin.
		isOwn := c.prev == nil || slices.ContainsFunc(c.conf.Runtime.IPs,
			func(w string) bool { return sameIP(w, ip.Address) })
		if !isOwn || ip.Interface != nil && *ip.Interface != own {
			continue
		}
		addresses.IPs = append(addresses.IPs, ip.Address.String())
		if ip.Gateway != nil {
			addresses.Gateways = append(addresses.Gateways, ip.Gateway.String())
		}
	}
	if !r.DNS.IsEmpty() && (c.prev == nil || c.conf.Runtime.DNS != nil || c.conf.DNS != nil) {
		dns := devices.DNS(r.DNS)
		addresses.DNS = &dns
	}
	return addresses
}
