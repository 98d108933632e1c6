// SPDX-License-Identifier: Apache-2.0

// Package policyeval evaluates a node's policy without the node: for single requests, for the pods of manifests and for
// test cases. It also collects the requests of containers from audit logs.
//
// Invariant: decisions come from internal/config/policy, as in the adapters. Only the files that the caller names are
// read.
package policyeval
