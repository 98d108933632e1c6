// SPDX-License-Identifier: Apache-2.0

// Package cli is the command-line door: it explains, validates and shows.
//
// Its invariant: results go to standard output and nothing else does; messages
// go to standard error; the exit status says whether the answer was good. What
// comes from files, names of files included, is printed without the characters
// that a terminal acts on.
//
// The manners are those of docs/cli.md: each message is one that a person can
// act on, begins with "jackfield:", and may be followed by a hint. Output is
// sorted, and has no colours.
package cli
