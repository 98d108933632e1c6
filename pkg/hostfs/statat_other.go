// SPDX-License-Identifier: Apache-2.0

//go:build !amd64 && !arm64

package hostfs

import "golang.org/x/sys/unix"

// statAt is unix.Fstatat of an absolute path. Elsewhere the kernel may have another
// call for it, and another layout.
func statAt(path string, st *unix.Stat_t, flags int) error {
	return unix.Fstatat(unix.AT_FDCWD, path, st, flags)
}
