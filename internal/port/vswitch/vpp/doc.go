// SPDX-License-Identifier: Apache-2.0

// Package vpp creates ports on VPP, by its binary API on the socket "socksvr".
//
// A message is a header of 16 bytes and a packed body in network byte order. VPP numbers its messages again at each
// start, and sends a table of names and numbers when a client connects. A message's name there ends in a checksum of
// its definition, so a message that another version of VPP defines differently is missing, and not misread.
//
// VPP does not answer a message that it cannot read. So each call has a deadline.
//
// Invariant: an interface is changed or deleted only when its tag is Jackfield's. The tag names the owner.
package vpp
