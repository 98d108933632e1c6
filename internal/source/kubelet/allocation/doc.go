// SPDX-License-Identifier: Apache-2.0

// Package allocation holds the types of the kubelet's response about the devices of a pod's
// containers.
//
// It is separate from package kubelet because it does not import gRPC. The OCI hook uses the types,
// and a gRPC client in its binary would delay every container.
package allocation
