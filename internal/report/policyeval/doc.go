// SPDX-License-Identifier: Apache-2.0

// Package policyeval evaluates a node's policy without the node: for single requests, for the pods of manifests and for
// test cases. It also collects the requests of containers from audit logs.
//
// Invariant: a decision is that of internal/config/policy, which adapters get as well. Nothing is read but the files
// that the caller names.
package policyeval
