// SPDX-License-Identifier: Apache-2.0

// Package allocation is what the kubelet says of the devices of a pod's containers,
// as values.
//
// It has no code that asks the kubelet: a program that imports these values and
// never asks does not carry a gRPC client, and does not wait for one to get ready.
package allocation
