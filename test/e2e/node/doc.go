// SPDX-License-Identifier: Apache-2.0

// Package node is a Kubernetes node without Kubernetes: a real, unmodified containerd of each generation with
// runc, CNI and an image that is built locally, and the part of the kubelet that speaks CRI. Tests and the
// demonstration run pods and Jackfield's plugin on it.
//
// Invariant: everything that a Node creates is below its directory, its cgroup and the jail's namespaces, and
// Close removes it. A Node starts only in a jail (see package jail), so that it ends with the jail even
// without Close.
//
// Functions return errors and do not use the testing package. Package e2e wraps them for tests.
package node
