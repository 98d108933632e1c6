// SPDX-License-Identifier: Apache-2.0

// Package staging keeps the directories on the host that belong to containers, and rebinds
// the sockets in them when a vswitch re-creates its sockets.
//
//	<state>/containers/                 a shared mount
//	<state>/containers/<containerID>/   /var/run/jackfield of the container
//	<state>/sandboxes/<sandboxID>/      a record of each container of the sandbox
//	<state>/claims/                     claims of package sockdir
//	<state>/rights/                     records of package sockaccess
//	<state>/staging.json                how sockets get into containers, and why
//
// A socket of the host is opened below its socket root and checked on the descriptor. It is bound in the staging
// directory from that descriptor. Mounts made there, also later, propagate into the container.
//
// One process can use the directory, or many: see Options.Shared.
//
// Two rules hold everywhere. First, everything is recorded under its sandbox before it is created. The removal of
// the sandbox, also after a crash, then removes all of it, and nothing that existed before. Second, no mount follows
// a symlink, and a file of an unexpected type is not mounted.
package staging
