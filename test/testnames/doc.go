// SPDX-License-Identifier: Apache-2.0

// Package testnames finds the tests of a tree.
//
// Its invariant: a name that is in the answer is that of a test or fuzz target which
// is there.
package testnames
