// SPDX-License-Identifier: Apache-2.0

// Package allocation holds the types of the kubelet's answer about the devices of a pod's
// containers.
//
// It is apart from package podresources because it imports no gRPC. The OCI hook uses the
// types, and a gRPC client in its binary would delay every container.
package allocation
