// SPDX-License-Identifier: Apache-2.0

// Package runtimeconfig reads the configuration of containerd and CRI-O: whether NRI is on and how it is turned on,
// where its socket is, which plugins are required, and what else injects devices.
//
// A configuration is read as the runtime itself reads it, with imports and drop-ins, and every setting keeps its file
// and line. The package writes no file.
package runtimeconfig
