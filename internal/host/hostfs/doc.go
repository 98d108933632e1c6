// SPDX-License-Identifier: Apache-2.0

// Package hostfs reads and writes files of the host. Every other package uses it for that.
//
// An untrusted path never leaves the host root and never blocks. All host paths lie below one
// directory, a [Root] value: "/" in production, a fixture tree in tests. Symlinks are followed only
// inside the root (openat2 RESOLVE_IN_ROOT), magic links never. Files are opened with O_NONBLOCK
// and checked on the descriptor, so that a FIFO, a device or a huge file is an immediate error.
//
// Below a directory that another user can write, such as a socket root, [Root.OpenBeneath] follows
// no symlink at all. [ReplaceAt] replaces files atomically: every reader sees the old or the new
// content.
package hostfs
