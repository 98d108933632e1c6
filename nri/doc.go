// SPDX-License-Identifier: Apache-2.0

// Package nri is the NRI plugin: the container runtime calls it when it creates a container.
//
// One lock in the runtime covers every plugin call on the node, and a plugin that takes longer than the request
// timeout is disconnected. So a handler (handlers.go) does no work that can be done beforehand, runs work that
// can hang on a worker (calls.go), and returns an error before the runtime's deadline rather than nothing. NRI
// 0.12.4 has failure policies: the plugin requests one, so that the container fails when the plugin does not
// respond. NRI 0.10 has only validators: there the plugin is a validator, because a container without its
// validator fails.
//
// The plugin consists of parts, which newPlugin creates and connects (plugin.go). Each part is a type with its
// own lock and file, and no part refers to the plugin.
package nri
