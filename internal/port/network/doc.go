// SPDX-License-Identifier: Apache-2.0

// Package network reads the configuration of a CNI network. The CNI plugin runs its operations on the [Config] of its
// plugin. Reports [Read] a whole network and get the same errors as a container runtime.
//
// Its promise: a key that nobody defines, or that requests something impossible, is an error that has the code of the
// CNI specification and names the key, its value and its place. A network chooses only locations that the node's
// configuration lists.
//
// docs/reference/cni-plugin.md lists the keys of the configuration.
package network
