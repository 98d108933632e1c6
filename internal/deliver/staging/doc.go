// SPDX-License-Identifier: Apache-2.0

// Package staging keeps the directories on the host that belong to containers, and rebinds
// the sockets in them when a vswitch re-creates its sockets.
//
//	<state>/containers/                 a shared mount
//	<state>/containers/<containerID>/   what the container sees at /var/run/jackfield
//	<state>/sandboxes/<sandboxID>/      a record of each container of the sandbox
//	<state>/claims/                     claims of package sockdir
//	<state>/rights/                     records of package sockaccess
//	<state>/staging.json                how sockets get into containers, and why
//
// A socket of the host is opened below its socket root and checked on the descriptor. It is
// bound in the staging directory from that descriptor. Mounts made there, also later, propagate
// into the container.
//
// One process can use the directory, or many: see Options.Shared.
//
// Two rules hold everywhere. Whatever is created is recorded under its sandbox before it is
// created. Removing the sandbox, also after a crash, then removes all of it, and nothing that
// existed before. And nothing is bound that was reached through a symlink, or that is not of
// the expected type.
package staging
