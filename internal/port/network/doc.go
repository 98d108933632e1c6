// SPDX-License-Identifier: Apache-2.0

// Package network reads the configuration of a CNI network. The CNI plugin runs its operations on
// the [Config] of its plugin. Reports [Read] a whole network and produce the same errors as a
// container runtime.
//
// Its invariant: an undefined key, or a key that requests something impossible, is an error with a
// code of the CNI specification, and with the key, its value and its place. A network can choose
// only locations that the node's configuration lists.
//
// docs/reference/cni-plugin.md lists the keys of the configuration.
package network
