// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
)

// This file finds the devices of a container without a network. The kubelet's list and the claims
// come first. The environment counts only where the kubelet has no socket, and is otherwise checked
// against the kubelet's list.
//
// allocatedDevices returns the devices of the container that belong to no network.
func (s *Search) allocatedDevices() []Attachment {
	if len(s.env) == 0 && len(s.q.MetadataFiles) == 0 && s.kubelet.answer == nil ||
		s.q.Wanted != nil && !s.q.Wanted(&Attachment{}) {
		return nil
	}
	var out []Attachment
	seen := map[string]bool{}
	add := func(a Attachment) {
		d, ok := deviceOf(a.Info)
		if a.Err == nil && (!ok || s.isOfNetwork(a, d) || seen[d.sysfsName()]) {
			return
		}
		if ok {
			seen[d.sysfsName()] = true
		}
		out = append(out, a)
	}
	answer := s.kubelet.allocation()
	for _, r := range answer.container.Resources {
		for _, id := range r.IDs {
			if a, ok := s.files.describeAllocated(r.Name, id); ok && !s.isOfNetwork(a, device{}) {
				s.markOwned(&a)
				add(a)
			}
		}
	}
	for _, a := range s.findClaimedDevices() {
		if d, ok := deviceOf(a.Info); ok {
			seen[d.sysfsName()] = true
		}
		out = append(out, a)
	}
	if !answer.answered || answer.listed {
		for _, a := range s.fromEnvironment() {
			add(a)
		}
	}
	for i := range out {
		out[i].Notes = append(out[i].Notes, s.envNotes...)
	}
	slices.SortStableFunc(out, func(a, b Attachment) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.Claimed.Name(), b.Claimed.Name()),
			strings.Compare(a.DeviceID, b.DeviceID))
	})
	return out
}

// fromEnvironment returns the devices in the container's environment. If the kubelet lists the pod,
// it returns only the devices that the kubelet did not allocate, as conflicts.
func (s *Search) fromEnvironment() []Attachment {
	answer := s.kubelet.allocation()
	var out []Attachment
	for _, v := range s.env {
		for _, id := range v.ids {
			if answer.answered && s.isAllocated(id) {
				continue
			}
			a, ok := s.files.describeAllocated(s.resourceOf(v), id)
			d, isDevice := deviceOf(a.Info)
			if !ok || isDevice && s.isOfNetwork(a, d) || !isDevice && a.Err == nil {
				continue
			}
			switch {
			case answer.err != nil:
				a.reject(fmt.Errorf("find the owner of device %s: %w", diag.Quote(id), answer.err))
			case answer.answered:
				a.reject(s.forgedError(v, id))
			default:
				s.markOwned(&a)
			}
			out = append(out, a)
		}
	}
	return out
}

// isOfNetwork reports whether a device belongs to a network of the sandbox, usable or not. A
// network without readable device-info is identified by the device ID that Multus passed to it.
func (s *Search) isOfNetwork(a Attachment, d device) bool {
	if d != (device{}) && slices.ContainsFunc(s.devices, d.isSame) {
		return true
	}
	return slices.ContainsFunc(s.attached, func(n Attachment) bool {
		return n.Err != nil && n.DeviceID != "" && canonicalID(n.DeviceID) == canonicalID(a.DeviceID)
	})
}
