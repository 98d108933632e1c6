// SPDX-License-Identifier: Apache-2.0

// Package policy decides which devices, sockets, mounts, hooks, networks and ports a container can
// have.
//
// Invariant: default deny, and a decision is a pure function of the rules, the subject and the
// requested name. A Policy does not change after New, so any number of goroutines can use it, and a
// new configuration replaces the whole Policy.
//
// The time of a decision is linear in the length of the name, whatever characters a tenant puts
// into it. The exception is a network of unknown namespace if a rule denies networks: it stands for
// one name for each "-" in it.
//
// The package only compares names. Code that opens a path must keep it beneath its root
// (internal/host/hostfs).
//
// The rules are described in docs/reference/policy.md.
package policy
