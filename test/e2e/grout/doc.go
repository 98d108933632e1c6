// SPDX-License-Identifier: Apache-2.0

// Package grout runs the real grout of Debian, with its client grcli, and has the tests of Jackfield's driver for it.
//
//	func TestMain(m *testing.M) { grout.Main(m) }
//
//	func TestThing(t *testing.T) {
//		s := grout.Start(t, t.TempDir())
//		s.Run("interface", "add", "bridge", "br0")
//	}
//
// Invariant: nothing is installed. grout runs with the C library and the DPDK drivers of its own suite, without huge
// pages, in a jail whose network namespace gets the devices that it creates.
package grout
