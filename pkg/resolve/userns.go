// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// UserNS is a container's user namespace, which maps its users to other users of the host.
type UserNS struct {
	// PID is a process in the namespace; 0 if the runtime reports none.
	PID int
	// UIDs and GIDs are the mappings that the namespace will have, for a container without a
	// process: uidMappings and gidMappings of an OCI configuration.
	UIDs, GIDs []IDMap
}

// IDMap is a range of IDs: Size of them, from Inside on in the namespace and from
// Outside on outside of it.
type IDMap struct{ Inside, Outside, Size uint32 }

const (
	// maxIDMap is more bytes than a uid_map can have: 340 lines of 33 (user_namespaces(7)).
	maxIDMap      = 16 << 10
	maxIDMapLines = 340
)

// parseIDMap reads what /proc/PID/uid_map and gid_map have (user_namespaces(7)).
func parseIDMap(data []byte) ([]IDMap, error) {
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
			return nil, fmt.Errorf("line %d: found %.80q, want three numbers: the first ID inside, the first outside, and how many: %w",
				len(out)+1, strings.TrimSpace(line), errdefs.ErrInvalidArgument)
		}
		out = append(out, IDMap{n[0], n[1], n[2]})
	}
	return out, nil
}

// outside returns the ID of the host that an ID of the namespace is.
func outside(ranges []IDMap, id uint32) (uint32, bool) {
	for _, r := range ranges {
		if id >= r.Inside && id-r.Inside < r.Size {
			host := uint64(r.Outside) + uint64(id-r.Inside)
			return uint32(host), host < 1<<32-1
		}
	}
	return 0, false
}

// hostUser returns the user of the host that the container runs as, or nil if that is unknown. In
// a user namespace of its own, it is not the user inside, where it is root by default.
func (p *planner) hostUser() (*User, error) {
	u := p.req.User
	if uid, gid, ok := p.cfg.Sockets.UserIDs(); u == nil && ok {
		u = &User{UID: uid, GID: gid}
	}
	if p.req.UserNS == nil {
		return u, nil
	}
	if u == nil {
		u = &User{}
	}
	mapped, err := p.mapUser(*u)
	if err != nil {
		return nil, err
	}
	return &mapped, nil
}

// mapUser returns the user of the host that a user of the container's user namespace is,
// by the kernel's mapping as this process sees it.
func (p *planner) mapUser(u User) (User, error) {
	ns := p.req.UserNS
	pid := ns.PID
	if pid <= 0 && len(ns.UIDs)+len(ns.GIDs) > 0 {
		uid, err := hostID(ns.UIDs, "uidMappings", "user", u.UID)
		if err != nil {
			return u, err
		}
		gid, err := hostID(ns.GIDs, "gidMappings", "group", u.GID)
		return User{UID: uid, GID: gid}, err
	}
	if pid <= 0 {
		return u, fmt.Errorf("the container has a user namespace, and the runtime names no process in it: "+
			"whom its user is on the host cannot be told: %w", errdefs.ErrFailedPrecondition)
	}
	uid, err := p.mapID(pid, "uid_map", "user", u.UID)
	if err != nil {
		return u, err
	}
	gid, err := p.mapID(pid, "gid_map", "group", u.GID)
	return User{UID: uid, GID: gid}, err
}

func (p *planner) mapID(pid int, name, what string, id uint32) (uint32, error) {
	file := path.Join("/proc", strconv.Itoa(pid), name)
	data, err := p.host.ReadFile(file, maxIDMap)
	if err != nil {
		if errdefs.IsNotFound(err) {
			err = fmt.Errorf("%w; a plugin that runs in a pod needs hostPID: true for this", err)
		}
		return 0, fmt.Errorf("the container has a user namespace: find the %s of the host that its %s %d is: %w", what, what, id, err)
	}
	ranges, err := parseIDMap(data)
	if err != nil {
		return 0, fmt.Errorf("the container has a user namespace: %s: %w", file, err)
	}
	if len(ranges) == 1 && ranges[0] == (IDMap{0, 0, 1<<32 - 1}) {
		return 0, fmt.Errorf("the container has a user namespace, but %s is of a process that has none: the runtime and the plugin number "+
			"processes differently; a plugin that runs in a pod needs hostPID: true: %w", file, errdefs.ErrFailedPrecondition)
	}
	return hostID(ranges, file, what, id)
}

// hostID returns the ID outside that an ID of the namespace is; by names the source of the mapping.
func hostID(ranges []IDMap, by, what string, id uint32) (uint32, error) {
	host, ok := outside(ranges, id)
	if !ok {
		return 0, fmt.Errorf("the container has a user namespace in which %s %d is nobody of the host: %s does not map it: %w",
			what, id, by, errdefs.ErrFailedPrecondition)
	}
	return host, nil
}
