// SPDX-License-Identifier: Apache-2.0

// Package grout creates ports on grout, DPDK's graph router, through its command-line client grcli.
// grout's own protocol requires client and router of the same version, which holds for a grcli that
// was installed together with grout.
//
// A port's interface is named by [vswitch.PortName], and its description
// "jackfield:ID/IFNAME/NETWORK" contains the owner. grout passes a port's devargs to DPDK: they
// select the driver, the socket and the side that creates it.
//
// Invariant: the driver changes or deletes an interface only if both its name and its description
// are Jackfield's.
package grout
