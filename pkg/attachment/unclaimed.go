// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// unclaimed are the PCI and vDPA devices of the container that no network claims.
func (s *search) unclaimed() []Attachment {
	if len(s.env) == 0 && s.w == nil || s.q.Wanted != nil && !s.q.Wanted(&Attachment{}) {
		return nil
	}
	var out []Attachment
	seen := map[string]bool{}
	add := func(a Attachment) {
		d, ok := deviceOf(a.Info)
		if a.Err == nil && (!ok || s.networkHas(a, d) || seen[d.name()]) {
			return
		}
		if ok {
			seen[d.name()] = true
		}
		out = append(out, a)
	}
	w := s.word()
	for _, r := range w.own.Resources {
		for _, id := range r.IDs {
			if a, ok := s.allocated(r.Name, id); ok && !s.networkHas(a, device{}) {
				s.mine(&a)
				add(a)
			}
		}
	}
	if !w.answered || w.listed {
		for _, a := range s.fromEnvironment() {
			add(a)
		}
	}
	for i := range out {
		out[i].Notes = append(out[i].Notes, s.envNotes...)
	}
	slices.SortStableFunc(out, func(a, b Attachment) int {
		return cmp.Or(strings.Compare(a.Resource, b.Resource), strings.Compare(a.DeviceID, b.DeviceID))
	})
	return out
}

// fromEnvironment are the devices that the environment names. Where the kubelet
// answered they are no more than a check: one that it did not give is a conflict.
func (s *search) fromEnvironment() []Attachment {
	w := s.word()
	var out []Attachment
	for _, v := range s.env {
		for _, id := range v.ids {
			if w.answered && s.gave(id) {
				continue
			}
			a, ok := s.allocated(s.realName(v), id)
			d, isDevice := deviceOf(a.Info)
			if !ok || isDevice && s.networkHas(a, d) || !isDevice && a.Err == nil {
				continue
			}
			switch {
			case w.err != nil:
				a.refuse(fmt.Errorf("whose device %s is: %w", quote(id), w.err))
			case w.answered:
				a.refuse(s.forged(v, id))
			default:
				s.mine(&a)
			}
			out = append(out, a)
		}
	}
	return out
}

// networkHas reports whether a network of the sandbox has the device, be it one
// that cannot be used. A network without readable device-info has the one that
// Multus gave it.
func (s *search) networkHas(a Attachment, d device) bool {
	if d != (device{}) && slices.ContainsFunc(s.devices, d.same) {
		return true
	}
	return slices.ContainsFunc(s.attached, func(n Attachment) bool {
		return n.Err != nil && n.DeviceID != "" && normal(n.DeviceID) == normal(a.DeviceID)
	})
}
