// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Outside tells how a process in a user namespace sees the users around it.
type Outside struct {
	// Root is who uid 0 of the namespace is in the one around it.
	Root uint32
	// Unmapped is the uid by which every user is seen who has none in the namespace;
	// root of the host is among them unless Root is 0.
	Unmapped uint32
}

// initialUserNS is the inode of the host's own user namespace, USER_NS_INIT_INO of
// linux/nsfs.h.
const initialUserNS = 0xEFFFFFFD

// UserNamespace reports whether this process is in a user namespace other than the
// host's, as all are that rootless Podman starts, and what it sees from there;
// user_namespaces(7).
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
		unmapped = number(strings.TrimSpace(string(text)))
	}
	if root == -1 {
		return Outside{Root: unmapped, Unmapped: unmapped}, true
	}
	return Outside{Root: uint32(root), Unmapped: unmapped}, true
}

// rootOutside is who uid 0 is outside, -1 for nobody; inside is false for the map of the
// host's own namespace, and for none.
func rootOutside(mapped string) (root int64, inside bool) {
	root = -1
	for line := range strings.Lines(mapped) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] == "0" && f[1] == "0" && f[2] == "4294967295" {
			return -1, false
		}
		if f[0] == "0" {
			root = int64(number(f[1]))
		}
	}
	return root, mapped != ""
}

// number is a uid as the kernel prints it.
func number(s string) uint32 {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 65534
	}
	return uint32(n)
}
