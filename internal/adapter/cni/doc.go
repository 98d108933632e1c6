// SPDX-License-Identifier: Apache-2.0

// Package cni is the CNI plugin. It translates a network configuration, which package network
// reads, and the runtime's parameters into an attachment of package attach, which creates the
// socket's directory, the port and the device-info. It implements the CNI specification, versions
// 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0, and the CNI plugin's part of the Device Information
// Specification (§5.1.2).
//
// Its invariant: DEL, or GC of the network, removes everything that an ADD created and nothing
// else, even if that ADD was interrupted.
//
// [Plugin] dispatches commands itself, with the types and rules of containernetworking/cni. That
// project's skel package is unsuitable: tests cannot set its environment and streams, it prints
// errors without cniVersion, replies to VERSION with its own version, reads standard input without
// a bound, and checks the network namespace after it has printed the result. test/cniconf compares
// the two.
//
// docs/contributing/conformance-cni.md lists each requirement of the specification with its test.
package cni
