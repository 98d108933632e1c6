// SPDX-License-Identifier: Apache-2.0

// Package vswitch has small socket servers that stand for a virtual switch,
// and the client for them: enough to see whether a container reaches the very
// socket that it was granted, without a data plane.
//
// Invariant: a connection gets one line that names its server, and then the
// end; a server that was closed answers nobody and has no goroutine left.
package vswitch
