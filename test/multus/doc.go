// SPDX-License-Identifier: Apache-2.0

// Package multus is a CNI plugin for tests that does what others rely on Multus to do. Multus itself is not on
// the Go module proxy.
//
// The contract is that of Multus 4 and of the Device Information Specification:
//
//   - the pod's first network is the cluster's; its annotation names the others, which are
//     NetworkAttachmentDefinitions of the API server;
//   - a network with a resource gets a device that the kubelet allocated to the pod: the kubelet's Pod Resources
//     API lists them, and networks take them in the order of their sorted IDs, whatever container has them;
//   - such a network's device-info is copied from the device plugin's file before its CNI plugin runs, which gets
//     the device and the copy's path, and is removed after its DEL;
//   - a record of all networks is written before the first one is attached, and libcni's records of each network
//     are below the same directory;
//   - the annotation network-status of the pod has the result of each network, with its device-info.
//
// Invariant: an ADD that fails detaches what it attached.
package multus
