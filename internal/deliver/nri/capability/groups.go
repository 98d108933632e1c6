// SPDX-License-Identifier: Apache-2.0

package capability

import (
	"fmt"

	"github.com/jackfield/jackfield/internal/edit"
)

// withoutGroups is the flag with which nvidia-ctk leaves additionalGids out of its files.
const withoutGroups = "--feature-flag=no-additional-gids-for-device-nodes"

// UnneededGroup returns why a container can do without an additional group, which NRI cannot deliver; "" if it needs
// the group or its user is unknown.
//
// CDI files set a group for nodes that only the group can open. Jackfield makes the user of the container's process the
// owner of such a node, unless the file sets another owner. Root needs no group, because CAP_DAC_OVERRIDE is among the
// usual capabilities. In a user namespace neither is true: nodes keep their owners on the host.
func (can Capabilities) UnneededGroup(set *edit.Set, g *edit.GID) string {
	if can.UID == nil || can.UserNS || !opensNodes(set, g, *can.UID) {
		return ""
	}
	reason := "root with the capability DAC_OVERRIDE needs no group"
	if *can.UID != 0 {
		reason = fmt.Sprintf("the container's user %d owns the device nodes", *can.UID)
	}
	return fmt.Sprintf("additional group %d is not delivered, because NRI has no field for it: %s", g.ID, reason)
}

// opensNodes reports whether a user can open the device nodes of a group's file without the group. Without such a node
// the group has another purpose.
func opensNodes(set *edit.Set, g *edit.GID, uid uint32) bool {
	opened := 0
	for i := range set.Devices {
		d := &set.Devices[i]
		if d.Origin.File != g.Origin.File || d.Type == "p" {
			continue
		}
		switch {
		case uid == 0 || d.UID != nil && *d.UID == uid && ownerHasGroupAccess(d):
			opened++
		case d.GID != nil && *d.GID == g.ID:
			return false
		}
	}
	return opened > 0
}

// ownerHasGroupAccess reports whether the mode of a node gives the owner at least the permissions of the group.
func ownerHasGroupAccess(d *edit.Device) bool {
	return d.FileMode == nil || (*d.FileMode>>3)&^(*d.FileMode>>6)&7 == 0
}

// undeliverableGroup is the error of a group that the container needs.
func (can Capabilities) undeliverableGroup(g *edit.GID) error {
	advice := "generate the file without additionalGids, such as with `nvidia-ctk cdi generate " + withoutGroups + "`"
	if can.UID != nil {
		advice = fmt.Sprintf("add %d to supplementalGroups in the pod's securityContext, or ", g.ID) + advice
	} else {
		advice += fmt.Sprintf(", or use a runtime with NRI 0.11 (containerd 2.2.1), which reports the user, "+
			"and add %d to supplementalGroups of the pod", g.ID)
	}
	return unsupported(g.Origin, fmt.Sprintf("additional group %d", g.ID), "NRI has no field for it: "+advice)
}
