// SPDX-License-Identifier: Apache-2.0

// Package httpserver serves HTTP at an address that may become usable only later: another process
// still uses it, or the socket's directory is unresponsive.
//
// Invariant: no client can exclude others, and only the owner of a socket can connect to it.
package httpserver
