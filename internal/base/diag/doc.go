// SPDX-License-Identifier: Apache-2.0

// Package diag describes faults in files of other authors. It has one [Diagnostic] type with file,
// line, column, field, found value and rule, and functions that quote foreign text for messages.
//
// Its invariant: foreign text is quoted, in ASCII and of bounded length, so that it cannot flood a
// log or control a terminal.
package diag
