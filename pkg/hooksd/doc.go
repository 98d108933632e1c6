// SPDX-License-Identifier: Apache-2.0

// Package hooksd reads hooks.d directories, oci-hooks(5): which OCI hooks an
// administrator wants in which containers.
//
// Invariant: one bad file never disables another, and every bad one is a
// Problem with its file and field. A snapshot is immutable and has every file
// that was renamed into place before it was asked for. A hook is handed out as
// usable only while the host has its program, and nobody but root and the
// process's own user can alter file, directory or program.
//
// What a file means is decided by the parser of Podman and CRI-O
// (go.podman.io/common/pkg/hooks); docs/hooksd.md lists where more is wanted
// here. Conditions are compiled once; the tests hold that they match what that
// parser's own do.
package hooksd
