// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"path"
	"strconv"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// UserNS is a container's user namespace, which maps its users to other users of the host.
type UserNS struct {
	// PID is a process in the namespace; 0 if the runtime reports none.
	PID int
	// Path is the host path of a file on which the namespace is mounted; "" for none. CRI-O keeps the namespace of
	// a pod this way, and by default no process is in it.
	Path string
	// UIDs and GIDs are the mappings that the namespace will have, for a container without a
	// process: uidMappings and gidMappings of an OCI configuration.
	UIDs, GIDs []hostfs.IDMap
}

// JoinedUserNS returns the user namespace that a container joins. The OCI configuration has the path. The process is
// also in the namespace; 0 for none.
func JoinedUserNS(path string, process int) *UserNS {
	if owner := hostfs.NamespaceProcess(path); owner > 0 {
		return &UserNS{PID: owner}
	}
	return &UserNS{PID: process, Path: path}
}

// findHostUser returns the user of the host that the container runs as, or nil if that is unknown. In
// a user namespace of its own, the IDs inside differ, and the user inside is root by default.
func findHostUser(in *inputs) (*User, error) {
	u := in.req.User
	if uid, gid, ok := in.cfg.Sockets.UserIDs(); u == nil && ok {
		u = &User{UID: uid, GID: gid}
	}
	if in.req.UserNS == nil {
		return u, nil
	}
	if u == nil {
		u = &User{}
	}
	if ns := in.req.UserNS; ns.Path != "" {
		owner, err := in.host.OwnerOutside(ns.Path, hostfs.Owner{UID: u.UID, GID: u.GID})
		if err == nil {
			return &User{UID: owner.UID, GID: owner.GID}, nil
		}
		if ns.PID <= 0 {
			return nil, fmt.Errorf("the container has a user namespace: map its user %d to the host: %w", u.UID, err)
		}
	}
	uid, err := mapID(in, "user", u.UID)
	if err != nil {
		return nil, err
	}
	gid, err := mapID(in, "group", u.GID)
	return &User{UID: uid, GID: gid}, err
}

// mapID maps an ID of the container's user namespace to the host. The kind is "user" or "group".
func mapID(in *inputs, kind string, id uint32) (uint32, error) {
	ranges, source, err := readIDMap(in, kind)
	if err != nil {
		return 0, fmt.Errorf("the container has a user namespace: map its %s %d to the host: %w", kind, id, err)
	}
	host, ok := hostfs.IDOutside(ranges, id)
	if !ok {
		return 0, fmt.Errorf("the container has a user namespace, and %s %d has no mapping to the host in %s: %w",
			kind, id, source, errdefs.ErrFailedPrecondition)
	}
	return host, nil
}

// readIDMap returns the mapping of users or groups of the container's user namespace, and its source:
// the kernel's mapping as this process sees it or, before there is a process, the mapping of the configuration.
func readIDMap(in *inputs, kind string) (ranges []hostfs.IDMap, source string, err error) {
	ns := in.req.UserNS
	configured, source, name := ns.UIDs, "uidMappings", "uid_map"
	if kind == "group" {
		configured, source, name = ns.GIDs, "gidMappings", "gid_map"
	}
	switch {
	case ns.PID <= 0 && len(ns.UIDs)+len(ns.GIDs) > 0:
		return configured, source, nil
	case ns.PID <= 0:
		return nil, "", fmt.Errorf("the runtime names no process in it: %w", errdefs.ErrFailedPrecondition)
	}
	file := path.Join("/proc", strconv.Itoa(ns.PID), name)
	data, err := in.host.ReadFile(file, hostfs.MaxIDMap)
	if errdefs.IsNotFound(err) {
		err = fmt.Errorf("%w; a plugin that runs in a pod needs hostPID: true for this", err)
	}
	if err != nil {
		return nil, "", err
	}
	ranges, err = hostfs.ParseIDMap(data)
	if err == nil && hostfs.IsHostIDMap(ranges) {
		err = fmt.Errorf("it is of a process that has no user namespace of its own: the runtime and the plugin number "+
			"processes differently; a plugin that runs in a pod needs hostPID: true: %w", errdefs.ErrFailedPrecondition)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", file, err)
	}
	return ranges, file, nil
}
