// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// Outside describes the users outside of this process's user namespace.
type Outside struct {
	// Root is the uid in the parent namespace to which uid 0 of the namespace is mapped.
	Root uint32
	// Unmapped is the uid that the namespace shows for every user without a mapping. Unless Root is
	// 0, that includes root of the host.
	Unmapped uint32
}

// UserNamespace reports whether this process is in a user namespace other than the host's, like
// under rootless Podman, and describes the users outside of it (user_namespaces(7)).
func UserNamespace() (Outside, bool) {
	// an unreadable file counts as the host's own namespace
	mapped, _ := Host().ReadFile("/proc/self/uid_map", MaxIDMap)
	root, inside := rootOutside(mapped)
	if !inside {
		return Outside{}, false
	}
	unmapped := overflowUID()
	if root == -1 {
		root = int64(unmapped)
	}
	return Outside{Root: uint32(root), Unmapped: unmapped}, true
}

// overflowUID returns the uid that stands for users without a mapping (proc_sys_kernel(5)). The
// group is equal unless an administrator changed one of them.
func overflowUID() uint32 {
	text, err := Host().ReadFile("/proc/sys/kernel/overflowuid", 64)
	if err != nil {
		return 65534
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 65534
	}
	return uint32(n)
}

// rootOutside parses a uid_map and returns the ID to which uid 0 is mapped, or -1. inside is false
// for the map of the host's own namespace, and for an empty or invalid map.
func rootOutside(mapped []byte) (root int64, inside bool) {
	ranges, err := ParseIDMap(mapped)
	if err != nil || len(ranges) == 0 || IsHostIDMap(ranges) {
		return -1, false
	}
	if id, ok := IDOutside(ranges, 0); ok {
		return int64(id), true
	}
	return -1, true
}

// IDMap is a range of Size IDs in a user namespace. It begins with Inside in the namespace and with
// Outside in the parent.
type IDMap struct{ Inside, Outside, Size uint32 }

const (
	// MaxIDMap exceeds the size of a uid_map: 340 lines of 33 bytes (user_namespaces(7)).
	MaxIDMap      = 16 << 10
	maxIDMapLines = 340
)

// ParseIDMap parses the content of /proc/PID/uid_map or gid_map (user_namespaces(7)).
func ParseIDMap(data []byte) ([]IDMap, error) {
	var out []IDMap
	for line := range strings.Lines(string(data)) {
		field := strings.Fields(line)
		var n [3]uint32
		ok := len(field) == len(n) && len(out) < maxIDMapLines
		for i := 0; ok && i < len(n); i++ {
			v, err := strconv.ParseUint(field[i], 10, 32)
			n[i], ok = uint32(v), err == nil
		}
		// The last ID is reserved, so a range cannot contain it.
		if !ok || n[2] == 0 || uint64(n[0])+uint64(n[2]) > 1<<32-1 || uint64(n[1])+uint64(n[2]) > 1<<32-1 {
			return nil, fmt.Errorf("line %d: invalid value %.80q: must be three numbers: the first ID inside, the "+
				"first outside, and how many: %w",
				len(out)+1, strings.TrimSpace(line), errdefs.ErrInvalidArgument)
		}
		out = append(out, IDMap{n[0], n[1], n[2]})
	}
	return out, nil
}

// IsHostIDMap reports whether a map belongs to the host's own user namespace.
func IsHostIDMap(ranges []IDMap) bool {
	return len(ranges) == 1 && ranges[0] == IDMap{0, 0, 1<<32 - 1}
}

// IDOutside returns the parent's ID for an ID of the namespace. ok is false without a mapping.
func IDOutside(ranges []IDMap, id uint32) (outside uint32, ok bool) {
	for _, r := range ranges {
		if id >= r.Inside && id-r.Inside < r.Size {
			outside := uint64(r.Outside) + uint64(id-r.Inside)
			return uint32(outside), outside < 1<<32-1
		}
	}
	return 0, false
}

// NamespaceProcess returns the process of a path /proc/PID/ns/user, or 0 for any other path.
func NamespaceProcess(path string) int {
	pid, proc := strings.CutPrefix(path, "/proc/")
	pid, user := strings.CutSuffix(pid, "/ns/user")
	n, err := strconv.ParseUint(pid, 10, 31)
	if !proc || !user || err != nil {
		return 0
	}
	return int(n)
}
