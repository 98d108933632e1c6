// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"os"

	"golang.org/x/sys/unix"
)

// FileID identifies a file or a namespace while it exists. Later, a new file can reuse the number.
type FileID struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// IDOf returns the identity of an open file.
func IDOf(fd int) (FileID, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return FileID{}, os.NewSyscallError("fstat", err)
	}
	return StatID(&st), nil
}

// StatID returns the identity of the file of a stat.
func StatID(st *unix.Stat_t) FileID { return FileID{uint64(st.Dev), st.Ino} }
