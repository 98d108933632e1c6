// SPDX-License-Identifier: Apache-2.0

// Package policy decides what a container may have.
//
// Invariant: default deny, and a decision is a pure function of the rules, the
// subject and the name asked about. A Policy does not change after New, so one
// may be used by any number of goroutines and be replaced as a whole. A
// decision takes time linear in the length of the name, whatever the name
// holds, and allocates nothing when it grants. A network of unknown namespace,
// which has a name for each "-" that it holds, is the exception to both where
// a rule denies networks.
//
// The package compares names only. That a path stays beneath its root when it
// is opened is the business of whoever opens it (pkg/hostfs).
//
// The rules are described in docs/policy.md.
package policy
