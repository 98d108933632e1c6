// SPDX-License-Identifier: Apache-2.0

// Package artifact builds the parts of a release: static programs, archives, and OCI image layouts.
//
// Invariant: the same checkout, toolchain and parameters produce the same bytes. They contain no
// time, user or directory of the machine.
package artifact
