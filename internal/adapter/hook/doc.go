// SPDX-License-Identifier: Apache-2.0

// Package hook implements the OCI hook jackfield-hook, with the stages precreate, createRuntime,
// prestart and poststop. precreate is a stage of Podman and Buildah, which pass the container's
// configuration through the hook.
//
// Its invariants:
package hook
