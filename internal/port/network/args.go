// SPDX-License-Identifier: Apache-2.0

package network

import "github.com/jackfield/jackfield/pkg/devices"

// ConventionalArgs is args.cni (conventions, "args" in network config). It is optional metadata, so
// invalid values are ignored.
type ConventionalArgs struct {
	IPs []string
	MAC string
}

// readArgs reads args.cni (CNI conventions, "args"). These values are hints, so a value of another type is ignored.
func (c *Config) readArgs(v value) error {
	args := v.member("cni")
	var labels []devices.Label
	if c.decode(args.member("labels"), &labels, "") == nil {
		c.Labels = labels
	}
	c.Args.IPs, _ = c.decodeIPs(args.member("ips"))
	c.Args.MAC, _ = c.decodeMAC(args.member("mac"))
	return nil
}
