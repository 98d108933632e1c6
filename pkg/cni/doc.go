// SPDX-License-Identifier: Apache-2.0

// Package cni is the CNI door: the plugin that makes an attachment's socket
// directory and writes its device-info, which the other doors read. It implements
// the CNI specification, versions 0.3.1, 0.4.0, 1.0.0 and 1.1.0, and the CNI
// plugin's part of the Device Information Specification (§5.1.2).
//
// Its invariant: what an ADD makes is written down before it is made, and its
// record goes last. So a DEL, or a GC of the network, removes everything that an
// ADD made, wherever that ADD was stopped, and nothing else.
//
// [Plugin] dispatches by itself, with the types and rules of
// containernetworking/cni, and in the manner of its skel package, whose
// environment and streams are no fields that one could set from outside. skel
// also answers VERSION with a version of its own in place of the one it was asked
// with, prints errors without a cniVersion, and looks at the network namespace
// when all is made and the result is printed. test/cniconf holds the two against
// each other.
//
// docs/cni.md lists the keys of the configuration, and every requirement of the
// specification with the test that holds it.
package cni
