// SPDX-License-Identifier: Apache-2.0

// Package nritest is the runtime's side of NRI without a runtime: the adaptation code that
// containerd and CRI-O link, on a real socket. Plugins cannot distinguish it from a runtime.
// Nothing needs root.
//
// Its invariant: CreateContainer does what a runtime does, in the same order. It creates the
// container's OCI spec, passes that to the plugins, and applies their adjustments with the
// runtimes' own generator. It returns the spec that runc would get.
//
// The adaptation keeps its two timeouts in package variables. Runtimes of one process share
// them, and the last one started sets them for all.
package nritest
