// SPDX-License-Identifier: Apache-2.0

// Package ovs runs the real Open vSwitch of Debian's packages with DPDK's datapath, for tests of its driver
// and of what uses the driver. It needs root, for a network namespace, and neither huge pages nor hardware.
//
// Invariant: nothing is installed. Each switch has a run directory and a network namespace of its own, and ends
// with the test.
package ovs
