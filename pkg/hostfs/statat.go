// SPDX-License-Identifier: Apache-2.0

//go:build amd64 || arm64

package hostfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// shortPath is a length that most paths stay below.
const shortPath = 128

// statAt is unix.Fstatat of an absolute path without a NUL byte. That one takes memory
// for each path; a short one lies on the stack here.
func statAt(path string, st *unix.Stat_t, flags int) error {
	if len(path) >= shortPath {
		return unix.Fstatat(unix.AT_FDCWD, path, st, flags)
	}
	var text [shortPath]byte // ends with a NUL byte
	copy(text[:], path)
	cwd := unix.AT_FDCWD // of no meaning to an absolute path
	_, _, errno := unix.Syscall6(unix.SYS_NEWFSTATAT, uintptr(cwd), uintptr(unsafe.Pointer(&text)), uintptr(unsafe.Pointer(st)), uintptr(flags), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
