// SPDX-License-Identifier: Apache-2.0

// Command man generates the manual pages in docs/man: those of commands from the commands, the others
// from the documentation. A test checks that docs/man is up to date.
//
// Invariant: the same commands and documentation give the same bytes.
package main
