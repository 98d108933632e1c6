// SPDX-License-Identifier: Apache-2.0

// Package wording is how messages speak of what was found in something that others
// wrote.
//
// Its invariant: what is foreign is quoted, in ASCII and of bounded length, so that
// nobody can flood a log with it or draw on a terminal.
package wording
