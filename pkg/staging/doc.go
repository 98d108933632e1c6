// SPDX-License-Identifier: Apache-2.0

// Package staging keeps the directories on the host that belong to containers, and
// the sockets in them alive.
//
//	<state>/containers/                 one shared mount
//	<state>/containers/<containerID>/   what the container sees at /var/run/jackfield
//	<state>/sandboxes/<sandboxID>/      a record for each of the sandbox's containers, and
//	                                    which directories were made for its sockets
//	<state>/claims/                     whose those are
//	<state>/rights/                     which rights containers' users were given at sockets
//	<state>/staging.json                how sockets get into containers, and why
//
// A socket that the host side makes is bound in the staging directory, from a
// descriptor that was opened below its root and looked at; what is bound there, then
// or later, propagates into the container. When the host side makes the socket anew,
// it is bound anew.
//
// The directory can be that of many processes, each of which makes or removes a
// container and ends, and of one that keeps the sockets alive: see Options.Shared.
//
// Its invariant: whatever is made is written down before it is made, under the
// sandbox it belongs to, so that removing the sandbox (or, after a crash, finding it
// gone) removes all of it, and nothing that was there before; and nothing is bound
// that a symlink led to, or that is not what it should be.
package staging
