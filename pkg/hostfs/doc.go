// SPDX-License-Identifier: Apache-2.0

// Package hostfs is the floor that every other package reads and writes the host through.
//
// Its invariant: a path taken from outside never leaves the host root and never
// blocks. All host paths are taken below one directory, a [Root] value: "/" in
// production, a fixture tree in tests. Symlinks are followed inside the root
// only (openat2 RESOLVE_IN_ROOT), magic links never, and files are opened
// O_NONBLOCK and checked on the descriptor, so that a FIFO, a device or a huge
// file ends in an error at once.
//
// Below a directory that somebody else can write (a socket root, say)
// [Root.OpenBeneath] follows no symlink at all. [ReplaceAt] writes so that every reader
// sees the old or the new content.
package hostfs
