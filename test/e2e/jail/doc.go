// SPDX-License-Identifier: Apache-2.0

// Package jail runs a program's own executable again in namespaces of its own,
// so that a real container runtime can be tried without a trace on the machine.
//
// Invariant: whatever ends the outer process, SIGKILL included, nothing is left
// of what happened inside:
//
//   - processes: they live in a PID namespace, whose first process dies with the
//     outer process and takes all others along, daemons and containers too;
//   - mounts, network interfaces and network namespaces: they live in a mount
//     and a network namespace that go with the last process;
//   - files: /run is a tmpfs of the jail, and so are the directories /etc, /opt
//     and /var/lib themselves (their entries lead to the machine's, but for
//     those of container runtimes, which are hidden); TMPDIR is below /run;
//   - cgroups: all belong below CgroupParent, which a keeper process outside
//     removes once the outer process is gone.
//
// Inside, the whole mount tree is shared among the jail's mount namespaces, as
// it is on a machine that systemd started, and cut off from the machine's.
package jail
