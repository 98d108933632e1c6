// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"encoding/json"

	"github.com/jackfield/jackfield/internal/attach"
	"github.com/jackfield/jackfield/internal/cnirecord"
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
	_, err := c.runIPAM("DEL", environ...)
	return err
}

// collectGarbage is GC (§2). Many IPAM plugins do nothing at GC, such as host-local. All implement DEL.
func (c *call) collectGarbage() error {
	if !c.conf.validGiven {
		return c.conf.invalid("cni.dev/valid-attachments", "nothing", "the list of the network's attachments that are still valid")
	}
	var leased error
	if c.conf.ipam != "" {
		_, leased = c.runIPAM("GC")
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
		if _, err := c.runIPAM("STATUS"); err != nil {
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
