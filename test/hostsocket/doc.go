// SPDX-License-Identifier: Apache-2.0

// Package hostsocket has servers of UNIX sockets on a host that are no vswitches, and their clients: the SPIFFE Workload API,
// Open vSwitch's database server, and a vhost-user-blk server.
//
// Each client connects again whenever its server goes away, and prints a line for each connection that works. The command in
// cmd/hostsocket runs the clients in containers, and the SPIFFE server in a process that a test can kill.
package hostsocket
