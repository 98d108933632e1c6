// SPDX-License-Identifier: Apache-2.0

// Package engine resolves one [Request] of a container to one [Plan], the same for every adapter.
//
// Each resolution is one pipeline, [Engine.Resolve] or [Engine.ResolveRunning]:
//
//	inputs      the request, the configuration, and the attachments of the sandbox on this node
//	sources     add candidates: adapter, annotations, device-injector, networks, allocated devices, hooks.d
//	candidate   is resolved into a delta, which reads the inputs and the draft and changes neither
//	delta       edits, sockets, an entry of devices.json, notes: merged into the draft, or dropped with a reason
//	draft       becomes the plan, after devices.json and the limits of policy
//
// Its invariants: a Plan is whole or there is an error, never half of one; the
// same request over the same host gives the same bytes; the host does not
// change. The adapter carries out the directories and sockets that a plan lists.
package engine
