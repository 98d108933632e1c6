// SPDX-License-Identifier: Apache-2.0

// Package rootless finds the configuration and the state directory for an ordinary user's
// containers. The OCI hook and the netavark plugin run in the user namespace of the user's Podman.
//
// Its invariant: the package reads nothing from the environment, so that both programs find the
// same paths.
package rootless
