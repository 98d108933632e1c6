// SPDX-License-Identifier: Apache-2.0

// Package ocihook is what a hooks.d file says, as values: the OCI hook, and in which
// containers it is wanted.
//
// It has no code that reads such files: a program that imports these values and has no
// such directory carries no parser of them.
package ocihook
