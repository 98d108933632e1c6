// SPDX-License-Identifier: Apache-2.0

// Package policy decides what a container may have.
//
// Invariant: default deny, and a decision is a pure function of the rules, the subject and the name
// asked about. A Policy does not change after New, so any number of goroutines may use it, and a
// new one replaces it as a whole. The time of a decision is linear in the length of the name,
// whatever the name holds, except for a network of unknown namespace where a rule denies networks:
// that has one name for each "-" in it.
//
// The package compares names only. Opening a path so that it stays beneath its root is up to the
// code that opens it (internal/host/hostfs).
//
// The rules are described in docs/reference/policy.md.
package policy
