// SPDX-License-Identifier: Apache-2.0

// Package busytest is for tests that speak of time on a machine that may have much else to
// do. Its invariant: a test fails of it for what the tested code does, and not for when
// the machine gets round to it.
package busytest
