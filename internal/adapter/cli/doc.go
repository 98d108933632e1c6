// SPDX-License-Identifier: Apache-2.0

// Package cli is the jackfield command: cobra commands over the packages that do the work, such as
// internal/report/doctor, internal/config/runtimeconfig and internal/engine.
//
// Results go to standard output, and nothing else does. Messages go to standard error. The exit status
// says whether the answer was good. Text from files, file names included, is printed without the
// characters that a terminal acts on.
//
// docs/reference/cli.md has the rules for messages: a person can act on each one, it begins with "jackfield:", and a
// hint may follow. Output is sorted. Only a terminal gets colours, unless
// the user asks for them.
package cli
