// SPDX-License-Identifier: Apache-2.0

// Package grout creates ports on grout, the graph router of DPDK, by its command-line client grcli. grout's own
// protocol demands that client and router are of the same version; grcli is, where both are installed together.
//
// A port's interface has the name of [vswitch.PortName] and the description "jackfield:ID/IFNAME/NETWORK", which
// names its owner. grout passes a port's devargs to DPDK: they name the driver, the socket and who creates it.
//
// Invariant: an interface is changed or deleted only when both its name and its description are Jackfield's.
package grout
