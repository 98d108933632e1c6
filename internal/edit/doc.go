// SPDX-License-Identifier: Apache-2.0

// Package edit holds the runtime-neutral changes to a container and the rules
// by which many of them become one ordered [Set].
//
// Its invariant: a Set contains no two edits that claim the same thing (a device
// path, a mount destination, a variable), every edit carries its [Origin], and
// the same input gives the same Set. The package is pure: it does no I/O.
package edit
