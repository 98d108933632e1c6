// SPDX-License-Identifier: Apache-2.0

// Package nritest is the runtime's side of NRI without a runtime: the very
// adaptation code that containerd and CRI-O link, on a real socket, driven from
// Go. Plugins cannot tell it from a runtime; nothing needs root.
//
// Invariant: a CreateContainer here goes through what a runtime does, in its
// order: the container's OCI spec is made first, the plugins see what that spec
// says, and their collected adjustment is applied to it by the runtimes' own
// generator. What the harness returns is the spec that runc would get.
//
// The adaptation keeps its two time-outs in package variables. Runtimes of one
// process therefore share them, and the one started last sets them for all.
package nritest
