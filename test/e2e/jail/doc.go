// SPDX-License-Identifier: Apache-2.0

// Package jail runs a program's own executable again in new namespaces, so that a real container runtime can
// be tested without leaving anything on the machine.
//
// Invariant: nothing from inside is left when the outer process ends, even by SIGKILL:
//
//   - processes, with daemons and containers, live in a PID namespace whose first process dies
//     with the outer process;
//   - mounts and network interfaces live in a mount and a network namespace that end with the
//     last process;
//   - files: /run, /etc, /opt and /var/lib are tmpfs of the jail, and TMPDIR is below /run. The
//     entries of /etc, /opt and /var/lib link to the machine's, except for those of container
//     runtimes, which are hidden;
//   - cgroups are below CgroupParent, which a keeper process outside removes once the outer
//     process has ended.
//
// Inside, the whole mount tree is shared among the jail's mount namespaces, as systemd does on a machine. It
// is private with respect to the machine's mount tree.
package jail
