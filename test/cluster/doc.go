// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a Kubernetes cluster of one or two nodes, for tests and for `make cluster`: the unmodified
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet and containerd, built from source
// with the versions in test/kubernetes, test/multus and test/containerd.
//
//	func TestMain(m *testing.M) { os.Exit(cluster.Run(cluster.Stages{Inside: m.Run})) }
//
//	func TestThing(t *testing.T) {
//		c, err := cluster.Start(t.Context(), cluster.Options{})
//		...
//		out, err := c.Kubectl(t.Context(), "get", "pods")
//	}
//
// Invariant: nothing of the machine is changed, and nothing is left when the outer process ends, even by
// SIGKILL. The cluster runs in a jail (see package jail). A node's containerd, kubelet and pods run in PID,
// mount, UTS and IPC namespaces of their own within it: when the node's first process is killed, the node has
// lost power, and Reboot starts it again. The second node also has its own network and disk. The machine-wide
// kernel parameters that a kubelet writes are private files there.
package cluster
