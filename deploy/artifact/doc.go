// SPDX-License-Identifier: Apache-2.0

// Package artifact makes what a release is made of: the static programs, archives, and OCI image layouts.
//
// Invariant: the same checkout, toolchain and parameters give the same bytes. No time, user or directory of
// the machine gets into them.
package artifact
