// SPDX-License-Identifier: Apache-2.0

// Package engine decides what a container is granted: from one [Request] to one [Plan], the same
// for every adapter.
//
// Its invariants: a Plan is whole or there is an error, never half of one; the
// same request over the same host gives the same bytes; nothing on the host is
// changed. What a plan needs on the host (directories, files) is data in it, for
// the adapter to carry out.
package engine
