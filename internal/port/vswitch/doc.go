// SPDX-License-Identifier: Apache-2.0

// Package vswitch describes the ports that Jackfield creates on a node's virtual switches, and the
// interface of the drivers that create them. The packages ovs, grout and vpp below this one are the
// drivers.
//
// Invariant: a driver changes and removes only ports that carry Jackfield's mark. Each port carries
// its owner, so that the port of a sandbox that is gone can be found and removed.
package vswitch
