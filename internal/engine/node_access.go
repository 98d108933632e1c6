// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfs"
)

// noteUnopenable adds a note for each device node that the container's user cannot open in a user namespace. The OCI
// runtime cannot create nodes there. It binds the host's node, which keeps its owner and mode, and the capabilities of
// the namespace do not apply to owners outside of it.
func (in *inputs) noteUnopenable(d *delta) {
	if in.req.UserNS == nil && !in.req.UserNSUnknown || in.running {
		return
	}
	user, mapped := &User{UID: unknownID, GID: unknownID}, "another user of the host"
	if !in.req.UserNSUnknown {
		var err error
		if user, err = in.hostUser(); err != nil || user == nil {
			return // sockets report the error; nodes need no user
		}
		mapped = fmt.Sprintf("%d:%d", user.UID, user.GID)
	}
	nodes := slices.Concat(d.present, d.edits.Edits().Devices)
	for i := range nodes {
		if note := in.unopenableNote(user, mapped, &nodes[i]); note != "" && len(d.item.Notes) < maxNotes {
			d.addNotes(note)
		}
	}
}

// unknownID stands for an unknown user or group. No user or group of a host has it.
const unknownID = 1<<32 - 1

// unopenableNote returns why a user of the host cannot open a node, with the remedy. It returns "" if the user can open
// the node or the node cannot be read. mapped describes the user.
func (in *inputs) unopenableNote(user *User, mapped string, d *edit.Device) string {
	file := cmp.Or(d.HostPath, d.Path)
	st, err := in.host.Stat(file)
	if err != nil || d.Type == "p" {
		return ""
	}
	bits := st.Mode & 7
	switch {
	case st.Uid == user.UID:
		bits = st.Mode >> 6 & 7
	case st.Gid == user.GID:
		bits = st.Mode >> 3 & 7
	}
	if bits&6 == 6 || d.Access == "r" && bits&4 != 0 {
		return ""
	}
	held := HeldDevice{Type: d.Type, Major: uint32(d.Major), Minor: uint32(d.Minor)}
	rule := sysfs.NodeUdevRule(path.Base(file))
	if device, err := held.FindDevice(in.host); err == nil {
		rule = device.UdevRule()
	}
	return fmt.Sprintf("the container cannot open %s: the node has mode %04o and belongs to %d:%d on the host, and the "+
		"container's user namespace maps its user to %s; add the udev rule %s on the node "+
		"(the device cgroup still keeps other containers out)",
		file, st.Mode&0o777, st.Uid, st.Gid, mapped, rule)
}
