// SPDX-License-Identifier: Apache-2.0

// Package kubelet queries the kubelet for the devices that it allocated to the containers of a pod.
// It is a client of the Pod Resources API v1, which the kubelet serves on a UNIX socket.
//
// NRI and CNI calls block the creation of a container, so [QueryPod] returns when its context ends,
// even if the kubelet is unresponsive.
//
// Nothing is kept between requests. Every request has its own connection, so a kubelet restart
// needs no handling, and a node without a kubelet costs one failed open. The kubelet's rate limit
// applies to all its clients together, so a rejected call is repeated.
//
// The client calls List, which every kubelet has, and selects the pod from the response. Get, for
// one pod, is off by default before Kubernetes 1.34.
//
// Resource names and device IDs come from device plugins and become part of messages and paths, so
// every response is validated. The kubelet does not list non-restartable init containers.
//
// The results are types of package allocation, which does not import gRPC: the OCI hook uses the
// types, and a gRPC client in its binary would delay every container.
package kubelet
