// SPDX-License-Identifier: Apache-2.0

// Package ovs is the driver of Open vSwitch with the DPDK datapath. It changes the switch's
// database over OVSDB (RFC 7047); ovs-vswitchd reads the database and creates the ports.
//
// Invariant: a port is created, changed or removed in one transaction. The transaction also checks
// that the port is Jackfield's own or that its name is free. Mark and owner are external_ids of the
// port, so they exist as long as the port.
package ovs
