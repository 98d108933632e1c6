// SPDX-License-Identifier: Apache-2.0

// Package install tests the methods of installing Jackfield on a node, on real containerd: the image of
// deploy/image, run as the DaemonSet of deploy/kustomize says.
//
// Invariant: the tests run what is shipped. They read the DaemonSet's file and send the runtime the requests
// of a kubelet. The only difference is the directory of the NRI socket.
package install
