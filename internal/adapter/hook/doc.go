// SPDX-License-Identifier: Apache-2.0

// Package hook is the OCI hook: what jackfield-hook does at the stages precreate, createRuntime,
// prestart and poststop. precreate is a stage of Podman and Buildah, which pass the container's
// configuration through the hook.
//
// Its invariants:
//   - A container that asks for nothing is not changed.
//   - A container gets what it asks for, or it does not start and the runtime prints the reason.
//   - What was created on the host for a container is removed at poststop.
//   - The hook ignores its environment, and neither reads nor runs anything of the image.
package hook
