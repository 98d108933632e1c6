// SPDX-License-Identifier: Apache-2.0

// Package podresources asks the kubelet which devices it allocated to the containers of a
// pod. It is a client of the Pod Resources API v1, which the kubelet serves on a Unix socket.
//
// NRI and CNI calls block the creation of a container, so [Client.Pod] returns when its
// context ends or after [Options].Timeout, even if the kubelet is unresponsive. The request
// then continues for [Options].CallTimeout, and its answer serves the next attempt to create
// the container. Concurrent calls for one pod share one request.
//
// An answer is kept for one pod, identified by name and UID (or sandbox ID). A re-created
// pod of the same name never gets the devices of its predecessor.
//
// Every request has a connection of its own, so a kubelet restart needs no handling, and a
// node without a kubelet costs one failed open. Requests are limited to half the rate that
// the kubelet allows to all its clients together.
//
// The client prefers the kubelet's Get method, which is alpha and off from Kubernetes 1.27,
// and on from 1.34. Where Get is off, and where it does not know the pod, a kubelet answers
// with the same code (Unknown). So any refusal of Get is checked with List, and a socket
// whose kubelet has no Get is remembered.
//
// Resource names and device IDs come from device plugins and end up in messages and paths,
// so every answer is validated. The kubelet does not list non-restartable init containers.
//
// The answers are types of package allocation, which imports no gRPC: the OCI hook uses the
// types, and a gRPC client in its binary would delay every container.
package podresources
