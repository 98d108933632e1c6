// SPDX-License-Identifier: Apache-2.0

// Package httpserver serves HTTP at an address that may not be usable yet: one that another
// process still uses, or a socket in a directory that is unresponsive.
//
// Invariant: no client keeps out others, and only the owner of a socket can connect to it.
package httpserver
