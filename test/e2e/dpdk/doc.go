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
// Invariant: DPDK is not installed, and no file of this machine replaces one of its files. A Tree is the
// unpacked packages, C library included, laid out as in a root file system. A container gets it as read-only
// mounts and needs nothing in its image. The host's testpmd runs with the tree's own loader.
//
// The tests need no huge pages, no hardware and no kernel module. testpmd polls: each side runs on one CPU,
// at low priority, for a limited time.
package dpdk
