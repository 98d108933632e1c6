// SPDX-License-Identifier: Apache-2.0

// Package busytest is for tests about time on a machine that may be busy. Its invariant: a
// test fails because of the tested code, never because of other load.
package busytest
