// SPDX-License-Identifier: Apache-2.0

// Package cli is the command-line door: it explains, validates and shows.
//
// Its invariant: results go to standard output and nothing else does; messages
// go to standard error; the exit status says whether the answer was good.
package cli
