// SPDX-License-Identifier: Apache-2.0

// Package kubelet is a kubelet as far as the Pod Resources API goes: a real gRPC
// server with the public v1 API on a unix socket, for tests.
//
// Its invariant: it behaves as it is told, from the next request on, and says how
// often it was asked. It can be absent (not started, or [Server.Stop]ped), slow
// ([Server.SetDelay]), older than Get ([WithoutGet], [GetDisabled]), refuse
// everything ([Server.SetError]), and lie ([Server.SetLie]). It holds no
// testing.TB.
package kubelet
