// SPDX-License-Identifier: Apache-2.0

// Package ocihook holds the content of a hooks.d file as values: the OCI hook and its conditions.
//
// It is separate from internal/source/hooksd so that jackfield-hook, which reads no hooks.d files,
// does not link the parser of Podman and CRI-O.
package ocihook
