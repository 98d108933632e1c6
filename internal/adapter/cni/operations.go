// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"slices"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/internal/port/attach"
	"github.com/jackfield/jackfield/internal/port/ipam"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// deleteAttachment implements DEL (§2).
func (c *call) deleteAttachment() error { return c.conf.Remove(c.ctx) }

// releaseAddresses runs DEL of an IPAM plugin for an attachment: of the record's plugin, with its
// configuration of ADD, or of the configuration's. Multus can drop keys of the latter. Without a record, no address
// was allocated. An unusable plugin is then only reported, so that DEL succeeds after a refused ADD.
func (c *call) releaseAddresses(key record.Key, recorded *record.IPAM, isDamaged bool) error {
	usable := c.conf.IPAMFault == nil && c.ipamPlugin().IsInstalled()
	switch {
	case recorded != nil && len(recorded.Config) > 0:
		environ := c.Environ
		if key != c.conf.Key { // CNI_NETNS is the namespace of the operation's own attachment
			environ = slices.Concat(environ, []string{"CNI_NETNS="})
		}
		return ipam.Release(c.ctx, key, recorded, environ, c.Stderr)
	case c.conf.IPAMFault == nil && c.conf.IPAMType == "":
		return nil
	case usable || isDamaged || recorded != nil:
		return cmp.Or(c.conf.IPAMFault, c.runRelease(key))
	}
	err := cmp.Or(c.conf.IPAMFault, c.ipamPlugin().NotFoundError())
	fmt.Fprintf(c.Stderr, "jackfield-cni: no address was allocated, so none is released: %v\n", err)
	return nil
}

// runRelease runs DEL of the configuration's IPAM plugin. For an attachment other than the
// operation's, the plugin receives that attachment's parameters.
func (c *call) runRelease(key record.Key) error {
	var environ []string
	if key != c.conf.Key {
		environ = []string{"CNI_CONTAINERID=" + key.ContainerID, "CNI_IFNAME=" + key.Interface, "CNI_NETNS="}
	}
	_, err := c.ipamPlugin().Run(c.ctx, "DEL", environ...)
	return err
}

// collectGarbage implements GC (§2). Many IPAM plugins, such as host-local, do nothing at GC, but
// all implement DEL, so it runs DEL.
func (c *call) collectGarbage() error {
	if !c.conf.ValidGiven {
		return c.conf.Invalid("cni.dev/valid-attachments", "nothing",
			"the list of the network's attachments that are still valid")
	}
	var leased error
	if c.conf.IPAMType != "" {
		_, leased = c.ipamPlugin().Run(c.ctx, "GC")
	}
	valid := map[record.Key]bool{}
	for _, v := range c.conf.Valid {
		valid[record.Key{Network: c.conf.Network, ContainerID: v.ContainerID, Interface: v.IfName}] = true
	}
	return attach.JoinErrors(leased, c.conf.CollectGarbage(c.ctx, valid))
}

// checkStatus implements STATUS (§2). The specification defines no result for STATUS, and runtimes
// ignore the output. It tells users which configuration file has the vswitch.
func (c *call) checkStatus() error {
	file, err := c.conf.Status(c.ctx)
	if err != nil {
		return err
	}
	if c.conf.IPAMType != "" {
		if _, err := c.ipamPlugin().Run(c.ctx, "STATUS"); err != nil {
			return err
		}
	}
	if file == "" {
		return nil
	}
	return json.NewEncoder(c.Stdout).Encode(struct {
		Version    string `json:"cniVersion"`
		ConfigFile string `json:"configFile"`
	}{c.version, file})
}

// checkAttachment implements CHECK (§2). It compares the device-info file, the socket directory and
// this plugin's part of the previous result with ADD. Later plugins can have changed the rest.
func (c *call) checkAttachment() error {
	if c.conf.PrevResult == nil {
		return c.conf.Invalid("prevResult", "nothing", "the result of the network's ADD")
	}
	prev, err := c.parsePrevResult()
	if err != nil {
		return err
	}
	r, lost := c.conf.ReadRecord()
	ns, _, err := c.openNetns()
	if err != nil {
		if attach.AsError(err).Code == codeContainer && lost == nil {
			// codeContainer would tell the runtime that no DEL is needed (§5, Error).
			return attach.Changed("its network namespace is gone",
				"CNI_NETNS=%q does not exist; DEL removes what ADD made", c.conf.Netns)
		}
		return err
	}
	ns.Close()
	if lost != nil {
		return lost
	}
	err = c.conf.Check(c.ctx, r, func(info *deviceinfo.Info, ips []string) error {
		if !r.Chained {
			if err := c.checkInterface(r, prev); err != nil {
				return err
			}
		}
		return checkAddresses(ips, prev)
	})
	if err == nil && c.conf.IPAMType != "" {
		_, err = c.ipamPlugin().Run(c.ctx, "CHECK")
	}
	return err
}

// checkInterface checks the interface that ADD returned. A later plugin can have changed its
// hardware address.
func (c *call) checkInterface(r *record.Record, prev *types100.Result) error {
	at := c.interfaceOf(prev)
	if at < 0 {
		return attach.Changed("prevResult", "it has no interface %q in the container", c.conf.Interface)
	}
	have := prev.Interfaces[at]
	if have.Sandbox != c.conf.Netns {
		return attach.Changed("prevResult", "interface %q is in %q, not in CNI_NETNS %q", c.conf.Interface,
			have.Sandbox, c.conf.Netns)
	}
	if want := c.newInterface(r.Info, ""); have.SocketPath != want.SocketPath || have.PciID != want.PciID {
		return attach.Changed("prevResult", "interface %q has socketPath %q and pciID %q: must be %q and %q",
			c.conf.Interface, have.SocketPath, have.PciID, want.SocketPath, want.PciID)
	}
	return nil
}

// checkAddresses checks the addresses that the runtime requested.
func checkAddresses(ips []string, prev *types100.Result) error {
	for _, ip := range ips {
		if _, _, err := net.ParseCIDR(ip); err == nil && missingAddress([]string{ip}, prev) != "" {
			return attach.Changed("prevResult", "address %s is not in it", ip)
		}
	}
	return nil
}
