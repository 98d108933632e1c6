// SPDX-License-Identifier: Apache-2.0

// Package cni tests the whole loop on a real containerd, without Multus and
// without a file written by hand: jackfield-cni makes the socket's directory and
// the device-info when the pod's network is made, jackfield-nri mounts it into the
// container, and DPDK's packets go through.
package cni
