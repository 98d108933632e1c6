// SPDX-License-Identifier: Apache-2.0

// Package hooksd reads hooks.d directories, oci-hooks(5): which OCI hooks an administrator wants in which
// containers.
//
// Its invariants:
//   - An invalid file never disables another. Each fault is reported with file and field.
//   - A snapshot is immutable, and has every file that was renamed into place before the call.
//   - A hook is only usable while the host has its program, and while only root and the user of this
//     process can change the file, its directory and the program.
//
// The parser of Podman and CRI-O (go.podman.io/common/pkg/hooks) decides the meaning of a file.
// docs/reference/hooks.d.md lists where this package is stricter. Conditions are compiled when a file is read; tests
// compare the results with those of that parser.
package hooksd
