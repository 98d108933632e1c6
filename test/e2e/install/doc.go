// SPDX-License-Identifier: Apache-2.0

// Package install tests the ways in which Jackfield gets onto a node, on real
// containerd: the image of deploy/image, run as the DaemonSet of deploy/kustomize
// says.
//
// Invariant: what runs is what is shipped. The DaemonSet's file is read and turned
// into what a kubelet would ask the runtime for, with nothing but the NRI socket's
// directory in another place.
package install
