// SPDX-License-Identifier: Apache-2.0

// Package oci applies a set of edits to the text of an OCI config.json (OCI Runtime Specification
// 1.3.0).
//
// Its invariants:
//   - Every edit of the set is in the result, or there is an error.
//   - A set that was resolved against [Existing] can be applied again: nothing is added twice.
//   - Fields that the edits do not change keep their values, including unknown fields and numbers
//     of any size. Only white space may change.
//
// The package does no I/O.
package oci
