// SPDX-License-Identifier: Apache-2.0

// Package kubelet serves the kubelet's Pod Resources API v1 on a Unix socket, for tests.
//
// A change takes effect with the next call, and the server counts its calls. It can be
// absent (not started, or [Server.Stop]ped), slow ([Server.SetDelay]), older than Get
// ([WithoutGet], [GetDisabled]), refuse every call ([Server.SetError]), and give invalid
// answers ([Server.SetLie]).
//
// [PodsServer] is the kubelet's other API, which has whole pods.
package kubelet
