// SPDX-License-Identifier: Apache-2.0

// Package admission evaluates deploy/admission as the API server does.
//
// Invariant: the expressions are compiled and run by the API server's own code,
// with its limits on their cost; what the cluster would refuse is refused here.
//
// It is a module of its own: nothing else needs the API server.
package admission
