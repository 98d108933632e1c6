// SPDX-License-Identifier: Apache-2.0

// Package kube has the tests of Jackfield in a Kubernetes cluster of one node, or of two. A test gets a K, which is the
// cluster that all tests share, with Jackfield installed by its chart:
//
//	func TestThing(t *testing.T) {
//		k := Start(t)
//		ns := k.Namespace("fast-thing", nil)
//		k.RunPod(Pod{Namespace: ns, Name: "a", Annotations: map[string]string{deviceKey: nic0}})
//		out := k.Exec(ns, "a", "cat", "/run/x")
//	}
//
// Each pod of the cluster has a network attachment with the socket of a vswitch that the test process serves.
// The policy grants it, and the CDI devices acme.com/nic, to namespaces that begin with "fast-".
//
// Invariant: a test leaves the cluster as it found it. Tests run one after another and must not be parallel.
package kube
