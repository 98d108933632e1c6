// SPDX-License-Identifier: Apache-2.0

// Package status is what a Jackfield daemon tells of itself: what it put into which
// running container, from which file, by which rule. The daemon answers at a socket
// in its state directory, and keeps a record of each container there, so that it
// can still tell after a restart.
//
//	<state>/status.sock          answers GET /status, in JSON; root's alone
//	<state>/status/<containerID> a record, in JSON
//
// Its invariant: a record is whole or not there, and neither a record nor a peer can
// make the other side read without a bound.
package status
