// SPDX-License-Identifier: Apache-2.0

// Package vswitch describes the ports that Jackfield creates on a node's virtual switches, and the
// interface of the drivers that create them. The drivers are the packages ovs, grout and vpp below
// it.
//
// Invariant: a driver changes and removes only ports that carry Jackfield's mark. Each port carries
// its owner, so that the port of a removed sandbox can be found and removed.
package vswitch
