// SPDX-License-Identifier: Apache-2.0

// Package dradriver runs a driver of dynamic resource allocation (DRA) for tests.
//
// The driver is one of the helper package of Kubernetes, k8s.io/dynamic-resource-allocation/kubeletplugin:
// that package serves the kubelet's gRPC API on a socket, writes device metadata and the CDI files
// that mount it. [StartInCluster] is for a real kubelet. After [Start], [Driver.Prepare] calls the API as
// the kubelet does, and [Driver.Inject] is what the runtime does with the answer.
package dradriver
