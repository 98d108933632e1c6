// SPDX-License-Identifier: Apache-2.0

// Package vswitch has small socket servers that stand for a virtual switch, and their client. They
// show whether a container reaches the very socket that it was granted; they have no data plane.
//
// Invariant: each connection gets one line that names its server, and is then closed. A closed
// server accepts no connection and leaves no goroutine.
package vswitch
