// SPDX-License-Identifier: Apache-2.0

// Package cni tests the whole path on a real containerd, without Multus and without files that a test writes.
// jackfield-cni creates the socket's directory and the device-info when the pod's network is created.
// jackfield-nri mounts the directory into the container. DPDK sends packets through the socket.
package cni
