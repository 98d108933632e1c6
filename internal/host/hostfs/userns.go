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
	// Root is the uid in the parent namespace that uid 0 of the namespace is mapped to.
	Root uint32
	// Unmapped is the uid that the namespace shows for every user without a mapping. Root of
	// the host is among them unless Root is 0.
	Unmapped uint32
}

// UserNamespace reports whether this process is in a user namespace other than the host's, as
// under rootless Podman, and describes the users outside of it; user_namespaces(7).
func UserNamespace() (Outside, bool) {
	mapped, _ := Host().ReadFile("/proc/self/uid_map", MaxIDMap) // none is as the host's own
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

// overflowUID returns the uid that stands for every user without a mapping, proc_sys_kernel(5). The group is the same
// unless an administrator changed one of them.
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

// rootOutside parses a uid_map and returns what uid 0 is mapped to, -1 for nothing. inside is
// false for the map of the host's own namespace, and for an empty or invalid map.
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

// IDMap is a range of IDs in a user namespace: Size of them, from Inside on in the namespace and from
// Outside on outside of it.
type IDMap struct{ Inside, Outside, Size uint32 }

const (
	// MaxIDMap is more bytes than a uid_map can have: 340 lines of 33 (user_namespaces(7)).
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
		// A range cannot include the last ID, which is reserved.
		if !ok || n[2] == 0 || uint64(n[0])+uint64(n[2]) > 1<<32-1 || uint64(n[1])+uint64(n[2]) > 1<<32-1 {
			return nil, fmt.Errorf("line %d: invalid value %.80q: must be three numbers: the first ID inside, the "+
				"first outside, and how many: %w",
				len(out)+1, strings.TrimSpace(line), errdefs.ErrInvalidArgument)
		}
		out = append(out, IDMap{n[0], n[1], n[2]})
	}
	return out, nil
}

// IsHostIDMap reports whether a map is that of the host's own user namespace.
func IsHostIDMap(ranges []IDMap) bool {
	return len(ranges) == 1 && ranges[0] == IDMap{0, 0, 1<<32 - 1}
}

// IDOutside returns the ID outside that an ID of the namespace is; ok is false if it has none.
func IDOutside(ranges []IDMap, id uint32) (outside uint32, ok bool) {
	for _, r := range ranges {
		if id >= r.Inside && id-r.Inside < r.Size {
			outside := uint64(r.Outside) + uint64(id-r.Inside)
			return uint32(outside), outside < 1<<32-1
		}
	}
	return 0, false
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
