// SPDX-License-Identifier: Apache-2.0

// Package dpdk runs the real dpdk-testpmd of Debian's DPDK 22.11, on the host and
// in containers, and has the tests that show packets over what Jackfield delivers.
//
//	func TestMain(m *testing.M) { dpdk.Main(m) }
//
//	func TestThing(t *testing.T) {
//		e2e.EachShipped(t, func(t *testing.T, h *e2e.H) {
//			tree := dpdk.Lay(t)
//			host := tree.Start(t, dpdk.Options{Devices: []string{"--vdev=net_vhost0,iface=/run/vsw/p/s"}})
//			ctr := pod.Run(node.ContainerOptions{Mounts: tree.Mounts(), Command: …})
//			counters := host.Exchange(500 * time.Millisecond)
//		})
//	}
//
// Invariant: nothing of DPDK is installed, and nothing of this machine's takes its
// place. A Tree is the unpacked packages as they would lie in a root file system,
// C library included. A container gets it as read-only mounts and needs nothing in
// its image; the host's testpmd runs with the tree's own loader.
//
// No huge pages, no hardware and no kernel module are needed. testpmd polls: it is
// given one CPU a side, at low priority, and for as long as is asked for.
package dpdk
