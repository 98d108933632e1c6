// SPDX-License-Identifier: Apache-2.0

// Command man writes the manual pages in docs/man: those of commands from the
// commands themselves, the others from the documentation. A test holds that what
// is there is what it writes.
//
// Invariant: the same commands and documentation give the same bytes.
package main
