// SPDX-License-Identifier: Apache-2.0

// Package live applies edits to a container that exists and has not started. Its namespaces and
// cgroups are created, and the runtime has read its configuration. OCI runtimes run createRuntime
// and prestart hooks at that point.
//
// Its invariants:
//   - What comes from the host is opened on the host and checked on its descriptor, before a thread
//     enters the container's mount namespace. That thread ends afterwards.
//   - No path below the container's root leads out of it. Nothing of the image is read or run.
//   - Applying the same edits twice changes nothing.
//   - Edits that cannot be delivered are listed by [UndeliverableEdits], never dropped.
package live
