// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// trim gives back what only the start needed, for an idle plugin's memory is counted
// against every node: the heap that reading everything took, and the mapping of the
// program's own code and constants, most of which the start alone runs. These
// stay in the kernel's page cache: what is used again costs a fault that reads
// nothing.
func trim() {
	debug.FreeOSMemory()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return
	}
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for from, to := range constant(string(maps), exe) {
		// What fails leaves everything as it was.
		_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
	}
}

// constant yields the address ranges, from and to, of a file that are mapped and
// cannot be written: nothing in them can differ from the file. maps is proc(5)'s.
func constant(maps, file string) func(yield func(from, to uintptr) bool) {
	return func(yield func(from, to uintptr) bool) {
		for line := range strings.Lines(maps) {
			f := strings.Fields(line)
			if len(f) < 6 || f[1] != "r-xp" && f[1] != "r--p" || !strings.HasSuffix(strings.TrimSpace(line), " "+file) {
				continue
			}
			a, b, _ := strings.Cut(f[0], "-")
			from, err1 := strconv.ParseUint(a, 16, 64)
			to, err2 := strconv.ParseUint(b, 16, 64)
			if err1 != nil || err2 != nil || to <= from {
				continue
			}
			if !yield(uintptr(from), uintptr(to)) {
				return
			}
		}
	}
}
