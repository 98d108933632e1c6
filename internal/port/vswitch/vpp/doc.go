// SPDX-License-Identifier: Apache-2.0

// Package vpp creates ports on VPP, by its binary API on the socket "socksvr".
//
// A message is a header of 16 bytes and a packed body in network byte order. VPP renumbers its
// messages at each start, and sends a table of names and numbers to each client. A message's name
// ends in a checksum of its definition. A message that another version of VPP defines differently
// is therefore missing instead of misread.
//
// VPP does not reply to a message that it cannot parse, so each call has a deadline.
//
// Invariant: the driver changes or deletes an interface only if its tag is Jackfield's. The tag
// contains the owner.
package vpp
