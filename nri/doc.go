// SPDX-License-Identifier: Apache-2.0

// Package nri is the NRI door: a plugin that a container runtime asks at the
// creation of every container.
//
// The constraint that governs it: one lock in the runtime covers every plugin
// call on the node, and a plugin that takes longer than the request timeout is
// disconnected. So a handler does no work that it can do beforehand, never
// waits past a budget inside the runtime's deadline, and answers with an error
// rather than not at all. Where the runtime knows failure policies (NRI 0.12.4),
// it is told to fail the container when the plugin does not answer; where it only
// knows validators (NRI 0.10), the plugin is one, without which there is no container.
package nri
