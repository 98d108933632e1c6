// SPDX-License-Identifier: Apache-2.0

// Package testkit has the helpers of the tests: Must for errors that end a test, and helpers for tests
// about time on a machine that may be busy. Their invariant: a test fails because of the tested code, never because of
// other load.
package testkit
