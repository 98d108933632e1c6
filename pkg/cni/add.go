// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"fmt"
	"net"
	"path"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// addition is what one ADD is about to make.
type addition struct {
	record record
	file   deviceinfo.CNIFile
	before *deviceinfo.Info // content of the file that the device plugin's was copied to; nil for none
	info   *deviceinfo.Info
	place  place
	mac    string
	ips    []string         // wanted from CNI_ARGS or args, beside those of the runtime's configuration
	prev   *types100.Result // of the plugin before; nil for the first
	leased bool             // the IPAM plugin's ADD succeeded
	wrote  bool             // the device-info file may be as this ADD writes it
}

// add is ADD (§2). Everything is decided before anything is made.
func (c *call) add() error {
	a, err := c.decide()
	if err != nil {
		return err
	}
	st, err := openStore(c.Host, c.conf.stateDir)
	if err != nil {
		return err
	}
	defer st.Close()
	c.step("decided")
	if err := st.create(&a.record); err != nil {
		return err
	}
	c.step("recorded")
	result, err := c.make(a)
	if err == nil {
		c.step("made")
		err = c.print(result)
	}
	if err == nil {
		c.step("printed")
		return nil
	}
	// The error is what counts; of what cannot be undone the record is left, for DEL.
	if undo := c.undo(st, a); undo != nil {
		fmt.Fprintf(c.Stderr, "jackfield-cni: undo ADD: %v\n", undo)
	}
	return err
}

// decide looks at everything that an ADD depends on.
func (c *call) decide() (*addition, error) {
	args, err := parseArgs(c.Args)
	if err != nil {
		return nil, err
	}
	a := &addition{}
	if c.conf.prevResult != nil {
		if c.conf.ipam != "" {
			return nil, unsupported("behind another plugin this one adds no interface, and no addresses: they are the first plugin's",
				field{"ipam", json.RawMessage(`{"type":"` + c.conf.ipam + `"}`)})
		}
		if a.prev, err = c.previous(); err != nil {
			return nil, err
		}
	}
	if err := c.checkNamespace(a.prev == nil); err != nil {
		return nil, err
	}
	if err := c.decideAddresses(a, args); err != nil {
		return nil, err
	}
	if err := c.decideFile(a, args); err != nil {
		return nil, err
	}
	if err := c.decidePlace(a); err != nil {
		return nil, err
	}
	if a.info, err = c.deviceInfo(a); err != nil {
		return nil, err
	}
	a.record = record{Network: c.conf.name, ContainerID: c.ContainerID, IfName: c.IfName, Chained: a.prev != nil,
		InfoDir: c.conf.infoDir, InfoFile: a.record.InfoFile, InfoKept: a.before != nil, Info: a.info}
	if a.place.dir != "" {
		a.record.SocketDir, a.record.Directory = c.conf.socketDir, a.place.dir
		a.record.ClaimsDir, a.record.Claimed = c.conf.claimsDir, c.claimedPath(a.place.dir)
	}
	return a, nil
}

// checkNamespace looks at the container's network namespace. The first plugin's
// interface must not be there yet; it will not be there afterwards either, being
// one of userspace, but its name is taken then.
func (c *call) checkNamespace(first bool) error {
	ns, own, err := c.openNetns()
	if err != nil {
		return err
	}
	defer ns.Close()
	if err := c.checkIsolated(own); err != nil {
		return err
	}
	if !first {
		return nil
	}
	has, err := hasInterface(ns, own, c.IfName)
	if err != nil {
		return err
	}
	if has {
		return fail(codeExists, "interface "+c.IfName+" of the container exists already", "CNI_NETNS=%q has an interface %q", c.Netns, c.IfName)
	}
	return nil
}

// previous is the result of the plugin before.
func (c *call) previous() (*types100.Result, error) {
	r, err := parseResult(c.conf.prevResult, c.version)
	if err != nil {
		return nil, fail(codeDecode, "failed to decode prevResult", "prevResult: %s", short(jsonProblem(c.conf.prevResult, err)))
	}
	return r, nil
}

// maxIPs bounds the addresses that each source may ask for. A pod's author may write
// args and CNI_ARGS, and each wanted address is compared with each of the result.
const maxIPs = 64

// checkIPCount refuses more addresses than maxIPs from one source.
func (c *call) checkIPCount(args cniArgs) error {
	want := fmt.Sprintf("%d IP addresses at most", maxIPs)
	for _, s := range []struct {
		key string
		ips []string
	}{{"runtimeConfig.ips", c.conf.runtime.ips}, {"args.cni.ips", c.conf.args.ips}} {
		if len(s.ips) > maxIPs {
			return invalid(s.key, fmt.Sprintf("%d IP addresses", len(s.ips)), want)
		}
	}
	if len(args.ips) > maxIPs {
		return environment("CNI_ARGS", c.Args, fmt.Sprintf("IP with %s; found %d", want, len(args.ips)))
	}
	return nil
}

// decideAddresses decides on hardware and IP addresses as far as IPAM does not,
// and refuses what was asked for and cannot be.
func (c *call) decideAddresses(a *addition, args cniArgs) error {
	if err := c.checkIPCount(args); err != nil {
		return err
	}
	socket := c.conf.device.isSocket()
	asked := func(name string) field { return field{"runtimeConfig." + name, c.conf.runtime.asked[name]} }
	switch r := &c.conf.runtime; {
	case r.mac != "" && !socket:
		return unsupported("the hardware address of a "+string(c.conf.device.kind)+" device is set by the plugin that configures the device, not by this one", asked("mac"))
	case r.bandwidth != nil && !socket:
		return unsupported("nothing of this plugin limits a "+string(c.conf.device.kind)+" device", asked("bandwidth"))
	case r.asked["ipRanges"] != nil && c.conf.ipam == "":
		return unsupported("there is no ipam that could allocate from them", asked("ipRanges"))
	case a.prev != nil && len(r.ips) > 0:
		if ip := lacking(r.ips, a.prev); ip != "" {
			return unsupported("the plugins before gave the interface no "+ip+", and this one, behind them, gives none", asked("ips"))
		}
	}
	a.mac = c.conf.runtime.mac
	if a.prev != nil {
		// CNI_ARGS and args go to every plugin of the network; they are for the first,
		// which makes the interface.
		return nil
	}
	if socket && a.mac == "" {
		if a.mac = c.conf.args.mac; a.mac == "" {
			a.mac = args.mac
		}
	} else if args.mac != "" && c.conf.args.mac == "" && !socket {
		return environment("CNI_ARGS", c.Args, "no MAC for a "+string(c.conf.device.kind)+" device, whose address this plugin cannot set")
	}
	if a.ips = c.conf.args.ips; a.ips == nil {
		a.ips = args.ips
	}
	if c.conf.ipam != "" {
		return nil
	}
	const want = "an address with its prefix length, as 10.10.0.1/24, where there is no ipam"
	for _, ip := range c.conf.runtime.ips {
		if _, _, err := net.ParseCIDR(ip); err != nil {
			return invalid("runtimeConfig.ips", `"`+ip+`"`, want)
		}
	}
	if c.conf.args.ips != nil {
		return nil
	}
	for _, ip := range args.ips {
		if _, _, err := net.ParseCIDR(ip); err != nil {
			return environment("CNI_ARGS", c.Args, "IP="+want)
		}
	}
	return nil
}

// decideFile finds the device-info file: the one the runtime names, or the one that
// Multus would name (Device Information Specification, §4.2 and §5.1.2).
func (c *call) decideFile(a *addition, args cniArgs) error {
	dir := deviceinfo.CNIDir{Root: c.Host, Dir: c.conf.infoDir}
	if _, err := deviceinfo.CNIFileName("n", "n", "c", c.IfName); err != nil || !utf8.ValidString(c.IfName) {
		return environment("CNI_IFNAME", c.IfName, "a name in UTF-8 without control characters, for files are named after it, and tell of it")
	}
	full := c.conf.runtime.infoFile
	if full == "" {
		namespace := args.namespace
		if namespace == "" {
			namespace = "default"
		}
		name, err := deviceinfo.CNIFileName(namespace, c.conf.name, c.ContainerID, c.IfName)
		if err != nil {
			return c.notNamed(namespace, err)
		}
		full = path.Join(c.conf.infoDir, name)
	}
	var err error
	if a.file, err = dir.File(full); err != nil {
		return fail(codeConfig, "invalid network configuration: runtimeConfig."+deviceinfo.CapabilityKey+": "+`"`+short(full)+`"`, "%v", err)
	}
	a.record.InfoFile = path.Base(full)
	a.before, err = a.file.Read()
	switch {
	case err == nil || errdefs.IsNotFound(err):
		return nil
	case errdefs.IsInvalidArgument(err):
		return fail(codeConfig, "invalid device-info of the device plugin", "%v", err)
	}
	return fail(codeIO, "I/O failure: device-info", "%v", err)
}

// notNamed is the error of a device-info file without a name, which says whose
// fault it is: the network's or the container's name.
func (c *call) notNamed(namespace string, why error) error {
	if _, err := deviceinfo.CNIFileName(namespace, c.conf.name, "c", c.IfName); err != nil {
		return fail(codeConfig, "invalid network configuration: name", "no device-info file can be named: %v", why)
	}
	return environment("CNI_CONTAINERID", c.ContainerID, fmt.Sprintf("a shorter one: the device-info file is named after it and network %q, with at most 255 bytes", c.conf.name))
}

// deviceInfo is the device-info of the attachment, without notes.
func (c *call) deviceInfo(a *addition) (*deviceinfo.Info, error) {
	d := &c.conf.device
	if !d.isSocket() {
		return c.conf.describe(c.Host, a.before)
	}
	info := &deviceinfo.Info{Type: d.kind}
	if a.before != nil {
		info = a.before.Clone() // of the same type: see decidePlace
	}
	info.Version = deviceinfo.Version
	if d.kind == deviceinfo.TypeVhostUser {
		if info.VhostUser == nil {
			info.VhostUser = &deviceinfo.VhostUser{}
		}
		info.VhostUser.Mode, info.VhostUser.Path = deviceinfo.VhostUserMode(d.field["mode"]), a.place.socket
	} else {
		if info.Memif == nil {
			info.Memif = &deviceinfo.Memif{}
		}
		info.Memif.Role, info.Memif.Path, info.Memif.Mode = deviceinfo.MemifRole(d.field["role"]), a.place.socket, deviceinfo.MemifMode(d.field["mode"])
	}
	if err := info.Validate(); err != nil {
		return nil, fail(codeConfig, "invalid network configuration: device", "%v", err)
	}
	return info, nil
}

// make makes what was decided and recorded.
func (c *call) make(a *addition) (*types100.Result, error) {
	// The same that STATUS asks of the directory.
	dir, err := openDir(c.Host, "deviceInfoDir", c.conf.infoDir, 0o755)
	if err != nil {
		return nil, err
	}
	dir.Close()
	if a.place.dir != "" {
		if err := c.makeSocketDir(a.place.dir); err != nil {
			// What stands there is not this attachment's, and no DEL of it may remove it.
			if asError(err).Code == codeExists {
				a.place.dir = ""
			}
			return nil, err
		}
	}
	c.step("directory made")
	result, err := c.result(a)
	if err != nil {
		return nil, err
	}
	c.step("addresses allocated")
	info := a.info.Clone()
	if err := note(info, c.notes(a, result)); err != nil {
		return nil, err
	}
	err = a.file.Update(func(current *deviceinfo.Info) (*deviceinfo.Info, error) {
		if (current != nil) != (a.before != nil) {
			return nil, fail(codeLater, "try again later", "device-info file %q came or went meanwhile", a.record.InfoFile)
		}
		a.wrote = true
		return info, nil
	})
	if err != nil {
		if e := asError(err); e.Code != codeIO {
			return nil, e
		}
		return nil, fail(codeIO, "I/O failure: device-info", "%v", err)
	}
	return result, nil
}

// result is what ADD returns: what the plugin before returned, or the interface
// with its addresses.
func (c *call) result(a *addition) (*types100.Result, error) {
	dns := c.conf.runtime.dns
	if dns == nil {
		dns = c.conf.dns
	}
	if a.prev != nil {
		if dns != nil {
			a.prev.DNS = *dns
		}
		return a.prev, nil
	}
	r := &types100.Result{}
	if c.conf.ipam != "" {
		leased, err := c.allocate()
		if err != nil {
			return nil, err
		}
		a.leased = true
		r.IPs, r.Routes, r.DNS = leased.IPs, leased.Routes, leased.DNS
		if ip := lacking(c.conf.runtime.ips, r); ip != "" {
			return nil, unsupported("IPAM plugin "+c.conf.ipam+" does not give out "+ip, field{"runtimeConfig.ips", c.conf.runtime.asked["ips"]})
		}
		if c.conf.args.ips == nil && lacking(a.ips, r) != "" {
			return nil, environment("CNI_ARGS", c.Args, "an IP that IPAM plugin "+c.conf.ipam+" gives out")
		}
	} else {
		r.IPs = static(append(append([]string(nil), c.conf.runtime.ips...), a.ips...))
	}
	r.Interfaces = []*types100.Interface{c.newInterface(a.info, a.place.socket, a.mac)}
	for _, ip := range r.IPs {
		ip.Interface = types100.Int(0)
	}
	if dns != nil {
		r.DNS = *dns
	}
	return r, nil
}

// static are the addresses that were asked for, where no IPAM plugin allocates any.
// Each is there once; one without a prefix length is left out, being optional
// metadata: the others were refused before.
func static(wanted []string) (ips []*types100.IPConfig) {
	for _, w := range wanted {
		address, err := types.ParseCIDR(w)
		if err == nil && lacking([]string{w}, &types100.Result{IPs: ips}) != "" {
			ips = append(ips, &types100.IPConfig{Address: *address})
		}
	}
	return ips
}

// notes is what the device-info file and devices.json say of the interface.
func (c *call) notes(a *addition, r *types100.Result) notes {
	n := notes{Network: c.conf.name, MAC: a.mac, Bandwidth: c.conf.runtime.bandwidth, Labels: c.conf.args.labels}
	own := 0
	if a.prev != nil {
		own = c.interfaceOf(r)
	}
	for _, ip := range r.IPs {
		// Behind other plugins the addresses are the kernel interface's: only those that
		// the runtime asked this plugin for are the device's too.
		wanted := a.prev == nil
		for _, w := range c.conf.runtime.ips {
			wanted = wanted || sameIP(w, ip.Address)
		}
		if !wanted || ip.Interface != nil && *ip.Interface != own {
			continue
		}
		n.IPs = append(n.IPs, ip.Address.String())
		if ip.Gateway != nil {
			n.Gateway = append(n.Gateway, ip.Gateway.String())
		}
	}
	if dns := r.DNS; !dns.IsEmpty() && (a.prev == nil || c.conf.runtime.dns != nil || c.conf.dns != nil) {
		n.DNS = &dnsNote{dns.Nameservers, dns.Domain, dns.Search, dns.Options}
	}
	return n
}

// undo takes back an ADD that failed; the record goes last.
func (c *call) undo(st *store, a *addition) error {
	var errs []error
	if a.leased {
		_, err := c.delegate("DEL")
		errs = append(errs, err)
	}
	switch {
	case !a.wrote: // what is there now is somebody else's
		a.record.InfoKept = true
	case a.before != nil:
		errs = append(errs, a.file.Write(a.before))
	}
	if a.place.dir == "" {
		a.record.Directory = ""
	}
	errs = append(errs, c.remove(&a.record))
	if err := joinErrors(errs...); err != nil {
		return err
	}
	return st.remove(recordName(a.record.Network, a.record.ContainerID, a.record.IfName))
}
