// SPDX-License-Identifier: Apache-2.0

// Package node is a Kubernetes node without Kubernetes: a real, unmodified
// containerd of either generation with runc, CNI and an image made on the spot,
// and the part of the kubelet that speaks CRI to it. Tests and the demonstration
// run pods on it, and Jackfield's plugin beside it.
//
// Invariant: everything a Node makes is below its directory, its cgroup and the
// jail's namespaces, and is gone after Close. A Node only starts in a jail (see
// package jail), so that it is gone too when Close was never reached.
//
// Functions return errors and know nothing of the testing package; package e2e
// has the same for tests.
package node
