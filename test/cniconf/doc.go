// SPDX-License-Identifier: Apache-2.0

// Package cniconf checks jackfield-cni against the CNI specification. libcni calls it as a runtime
// does, with the real plugins bridge, tuning, portmap and host-local: Debian's, and those of the
// reference's current release. The tests run in a jail with its own network namespaces.
//
// Invariant: no plugin here is a fake. Where a plugin must fail, the tests use noop, which the CNI
// project provides for that.
package cniconf
