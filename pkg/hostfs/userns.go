// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Outside describes the users outside of this process's user namespace.
type Outside struct {
	// Root is the uid in the parent namespace that uid 0 of the namespace is mapped to.
	Root uint32
	// Unmapped is the uid that the namespace shows for every user without a mapping. Root of
	// the host is among them unless Root is 0.
	Unmapped uint32
}

// initialUserNS is the inode of the host's own user namespace, USER_NS_INIT_INO of
// linux/nsfs.h.
const initialUserNS = 0xEFFFFFFD

// UserNamespace reports whether this process is in a user namespace other than the host's, as
// under rootless Podman, and describes the users outside of it; user_namespaces(7).
func UserNamespace() (Outside, bool) {
	var own unix.Stat_t
	if unix.Stat("/proc/self/ns/user", &own) == nil && own.Ino == initialUserNS {
		return Outside{}, false
	}
	mapped, err := Host().ReadFile("/proc/self/uid_map", 64<<10)
	if err != nil {
		return Outside{}, false
	}
	root, inside := rootOutside(string(mapped))
	if !inside {
		return Outside{}, false
	}
	unmapped := uint32(65534)
	if text, err := Host().ReadFile("/proc/sys/kernel/overflowuid", 64); err == nil {
		unmapped = parseUID(strings.TrimSpace(string(text)))
	}
	if root == -1 {
		return Outside{Root: unmapped, Unmapped: unmapped}, true
	}
	return Outside{Root: uint32(root), Unmapped: unmapped}, true
}

// rootOutside parses a uid_map and returns what uid 0 is mapped to, -1 for nothing. inside is
// false for the map of the host's own namespace, and for an empty map.
func rootOutside(mapped string) (root int64, inside bool) {
	root = -1
	for line := range strings.Lines(mapped) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] == "0" && f[1] == "0" && f[2] == "4294967295" {
			return -1, false
		}
		if f[0] == "0" {
			root = int64(parseUID(f[1]))
		}
	}
	return root, mapped != ""
}

// parseUID parses a uid as the kernel prints it.
func parseUID(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 65534
	}
	return uint32(n)
}

// NamespaceProcess returns the process that a path /proc/PID/ns/user belongs to, 0 for any other
// path.
func NamespaceProcess(path string) int {
	pid, proc := strings.CutPrefix(path, "/proc/")
	pid, user := strings.CutSuffix(pid, "/ns/user")
	n, err := strconv.ParseUint(pid, 10, 31)
	if !proc || !user || err != nil {
		return 0
	}
	return int(n)
}
