// SPDX-License-Identifier: Apache-2.0

// Package cniconf holds jackfield-cni against the CNI specification. It is driven
// by libcni, as runtimes drive it, beside the real bridge, tuning, portmap and
// host-local, Debian's and those of the reference's current release, in a jail with
// network namespaces of its own.
//
// Invariant: no plugin here is a stand-in; where a plugin has to misbehave, it is
// cni's own noop, which is made for that.
package cniconf
