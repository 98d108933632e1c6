// SPDX-License-Identifier: Apache-2.0

// Package live applies edits to a container that exists and has not started. Its namespaces and
// cgroups are created, and the runtime has read its configuration. OCI runtimes run createRuntime
// and prestart hooks at that point.
//
// Its invariants:
//   - Host objects are opened on the host and checked on their descriptors before a thread enters
//     the container's mount namespace. That thread ends afterwards.
//   - No path below the container's root leads out of it. No file of the image is read or executed.
//   - Applying the same edits twice changes nothing.
//   - Undeliverable edits are returned by [UndeliverableEdits], never dropped.
package live
