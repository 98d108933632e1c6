// SPDX-License-Identifier: Apache-2.0

// Package vpp is a server of VPP's binary API, for the tests of Jackfield's driver. VPP itself is in no Debian suite.
//
// Invariant: the server reads and writes messages only by the definitions that VPP publishes, in
// testdata/messages.json. It shares no code with the driver, and drops a message of another length, as VPP does. Its
// interfaces, bridge domains and sockets behave as VPP's; it forwards no packets.
package vpp
