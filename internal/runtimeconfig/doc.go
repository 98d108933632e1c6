// SPDX-License-Identifier: Apache-2.0

// Package runtimeconfig reads and edits the configuration of containerd and CRI-O: whether NRI is
// on, where its socket is, which plugins are required, and what else injects devices.
//
// A configuration is read as the runtime itself reads it, with imports and drop-ins, and every
// setting keeps its file and line. An edit changes the bytes of a value and nothing else, so that
// comments and order stay.
package runtimeconfig
