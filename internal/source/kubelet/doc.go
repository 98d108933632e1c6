// SPDX-License-Identifier: Apache-2.0

// Package kubelet asks the kubelet which devices it allocated to the containers of a
// pod. It is a client of the Pod Resources API v1, which the kubelet serves on a Unix socket.
//
// NRI and CNI calls block the creation of a container, so [QueryPod] returns when its
// context ends, even if the kubelet is unresponsive.
//
// Nothing is kept between requests: every request has a connection of its own, so a kubelet
// restart needs no handling, and a node without a kubelet costs one failed open. The kubelet
// limits the rate of all its clients together. A call that this limit refuses is repeated.
//
// The client calls List, which every kubelet has, and takes the pod from the answer. Get, for one
// pod, is off by default before Kubernetes 1.34.
//
// Resource names and device IDs come from device plugins and end up in messages and paths,
// so every answer is validated. The kubelet does not list non-restartable init containers.
//
// The answers are types of package allocation, which imports no gRPC: the OCI hook uses the
// types, and a gRPC client in its binary would delay every container.
package kubelet
