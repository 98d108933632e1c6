// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"
	"net"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"github.com/jackfield/jackfield/internal/attach"
	"github.com/jackfield/jackfield/internal/cnirecord"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// recordKey returns the key of the attachment of this operation.
func (c *call) recordKey() cnirecord.Key {
	return cnirecord.Key{Network: c.conf.Network, ContainerID: c.ContainerID, Interface: c.IfName}
}

// attachment returns the attachment that the configuration and the parameters describe.
func (c *call) attachment() *attach.Attachment {
	t := c.conf.Attachment
	t.Key, t.Netns, t.Labels = c.recordKey(), c.Netns, c.conf.args.labels
	return &t
}

// host returns where the attachment is created.
func (c *call) host() *attach.Host {
	return &attach.Host{Root: c.Host, Log: c.Stderr, Program: "jackfield-cni", Source: c.conf, Release: c.releaseAddresses, Reached: c.reached}
}

// deleteAttachment is DEL (§2).
func (c *call) deleteAttachment() error { return attach.Remove(c.ctx, c.host(), c.attachment()) }

// releaseAddresses has the IPAM plugin release an attachment's addresses. For another attachment than that of the
// operation, it gets the other's parameters.
func (c *call) releaseAddresses(key cnirecord.Key) error {
	if c.conf.ipamErr != nil || c.conf.ipam == "" {
		return c.conf.ipamErr
	}
	var environ []string
	if key != c.recordKey() {
		environ = []string{"CNI_CONTAINERID=" + key.ContainerID, "CNI_IFNAME=" + key.Interface, "CNI_NETNS="}
	}
	_, err := c.runIPAM(c.ctx, "DEL", environ...)
	return err
}

// collectGarbage is GC (§2). Many IPAM plugins do nothing at GC, such as host-local. All implement DEL.
func (c *call) collectGarbage() error {
	if !c.conf.validGiven {
		return c.conf.invalid("cni.dev/valid-attachments", "nothing", "the list of the network's attachments that are still valid")
	}
	var leased error
	if c.conf.ipam != "" {
		_, leased = c.runIPAM(c.ctx, "GC")
	}
	valid := map[cnirecord.Key]bool{}
	for _, v := range c.conf.valid {
		valid[cnirecord.Key{Network: c.conf.Network, ContainerID: v.ContainerID, Interface: v.IfName}] = true
	}
	return attach.JoinErrors(leased, attach.CollectGarbage(c.ctx, c.host(), c.attachment(), valid))
}

// checkStatus is STATUS (§2). The specification has no result of STATUS, and runtimes ignore the one for networks with a
// vswitch. It is for people.
func (c *call) checkStatus() error {
	file, err := attach.Status(c.ctx, c.host(), c.attachment())
	if err != nil {
		return err
	}
	if c.conf.ipam != "" {
		if _, err := c.runIPAM(c.ctx, "STATUS"); err != nil {
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

// checkAttachment is CHECK (§2). It checks that the device-info file, the socket directory and this plugin's part of the
// previous result are as ADD left them. Later plugins may have changed the rest.
func (c *call) checkAttachment() error {
	if c.conf.prevResult == nil {
		return c.conf.invalid("prevResult", "nothing", "the result of the network's ADD")
	}
	prev, err := c.parsePrevResult()
	if err != nil {
		return err
	}
	r, lost := attach.ReadRecord(c.host(), c.attachment())
	ns, _, err := c.openNetns()
	if err != nil {
		if attach.AsError(err).Code == codeContainer && lost == nil {
			// codeContainer would mean that no DEL is needed (§5, Error).
			return attach.Changed("its network namespace is gone", "CNI_NETNS=%q does not exist; DEL removes what ADD made", c.Netns)
		}
		return err
	}
	ns.Close()
	if lost != nil {
		return lost
	}
	err = attach.Check(c.ctx, c.host(), c.attachment(), r, func(info *deviceinfo.Info, ips []string) error {
		if !r.Chained {
			if err := c.checkInterface(r, prev); err != nil {
				return err
			}
		}
		return checkAddresses(ips, prev)
	})
	if err == nil && c.conf.ipam != "" {
		_, err = c.runIPAM(c.ctx, "CHECK")
	}
	return err
}

// checkInterface checks the interface that ADD returned. A later plugin may have changed its hardware address.
func (c *call) checkInterface(r *cnirecord.Record, prev *types100.Result) error {
	at := c.interfaceOf(prev)
	if at < 0 {
		return attach.Changed("prevResult", "it has no interface %q in the container", c.IfName)
	}
	have := prev.Interfaces[at]
	if have.Sandbox != c.Netns {
		return attach.Changed("prevResult", "interface %q is in %q, not in CNI_NETNS %q", c.IfName, have.Sandbox, c.Netns)
	}
	if want := c.newInterface(r.Info, ""); have.SocketPath != want.SocketPath || have.PciID != want.PciID {
		return attach.Changed("prevResult", "interface %q has socketPath %q and pciID %q, want %q and %q", c.IfName, have.SocketPath, have.PciID, want.SocketPath, want.PciID)
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
