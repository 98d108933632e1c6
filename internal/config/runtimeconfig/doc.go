// SPDX-License-Identifier: Apache-2.0

// Package runtimeconfig reads the configuration of containerd and CRI-O: whether NRI is on and how
// to turn it on, the path of its socket, the required plugins, and other device injectors.
//
// A configuration is read like by the runtime itself, with imports and drop-ins, and every setting
// keeps its file and line. The package writes no file.
package runtimeconfig
