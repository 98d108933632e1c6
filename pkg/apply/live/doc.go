// SPDX-License-Identifier: Apache-2.0

// Package live gives edits to a container that exists and has not started: its
// namespaces and cgroups are made, its configuration is read no more. That is
// where an OCI runtime runs createRuntime and prestart hooks.
//
// Its invariants: what comes from the host is opened on the host, and looked at on
// the descriptor, before the container's mount namespace is entered; below the
// container's root nothing leads out of it, and nothing of the image is read or
// run; doing it twice changes nothing. What the caller does afterwards it does where
// it was before, on the host: the thread that entered is thrown away, or came back, or
// does no more. An edit that comes too late is in [TooLate], never dropped.
package live
