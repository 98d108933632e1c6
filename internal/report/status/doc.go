// SPDX-License-Identifier: Apache-2.0

// Package status is the status of a Jackfield daemon: its injections into running
// containers, each with its file and rule. The daemon serves it at a socket in its state
// directory, and keeps a record of each container there, which survives a restart.
//
//	<state>/status.sock          answers GET /status, in JSON; root's alone
//	<state>/status/<containerID> a record, in JSON
//
// Its invariant: a record is complete or missing, and neither a record nor a peer can make the
// reader read without a bound.
package status
