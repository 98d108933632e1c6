// SPDX-License-Identifier: Apache-2.0

// Package testnames finds the names of tests in Go files.
//
// Invariant: every returned name belongs to an existing test or fuzz target.
package testnames
