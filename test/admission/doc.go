// SPDX-License-Identifier: Apache-2.0

// Package admission evaluates deploy/admission as the API server does.
//
// Invariant: the API server's own code compiles and runs the expressions, with its limits on their cost.
// These tests deny what a cluster denies.
//
// It is a separate module, because nothing else needs the API server.
package admission
