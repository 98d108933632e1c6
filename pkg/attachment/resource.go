// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/podresources/allocation"
	"github.com/jackfield/jackfield/pkg/wording"
)

// Resource gives the devices of an extended resource that were allocated to the
// container, or the one with the given ID, as the device plugin's files describe
// them (Device Information Specification, §4.1). A resource or device that was
// not allocated to it is errdefs.ErrNotFound; a *ConflictError is one that the
// container's environment claims against the kubelet's word; other errors are
// those of asking the kubelet.
func (f *Finder) Resource(ctx context.Context, q Query, resource, id string) ([]Attachment, error) {
	env, _ := parseEnvironment(q.Env)
	s := &search{Finder: f, ctx: ctx, q: &q, env: env}
	ids, err := s.idsOf(resource)
	if err != nil {
		var u *UnlistedError
		if errors.As(err, &u) {
			u.Holders = s.holdersOf(resource, id)
		}
		return nil, err
	}
	if id != "" {
		i := slices.IndexFunc(ids, func(have string) bool { return normal(have) == normal(id) })
		if i < 0 {
			hint := wording.MalformedPCIAddress(id)
			if hint != "" {
				hint = "; " + hint
			}
			return nil, fmt.Errorf("resource %q: device %q was not allocated to the container; allocated are %s%s: %w",
				resource, id, strings.Join(ids, ", "), hint, errdefs.ErrNotFound)
		}
		ids = ids[i : i+1]
	}
	out := make([]Attachment, 0, len(ids))
	for _, id := range ids {
		a, ok := s.allocated(resource, id)
		if !ok {
			p := s.pluginFile(resource, id)
			a.File = p.path
			a.Err = fmt.Errorf("device %q of resource %q: the device plugin wrote no device-info file %q, and the ID is no PCI address: %w",
				id, resource, p.path, errdefs.ErrNotFound)
		}
		s.mine(&a)
		out = append(out, a)
	}
	return out, nil
}

// holdersOf are the pod's containers that were given a resource, or the device of it
// with that ID.
func (s *search) holdersOf(resource, id string) (names []string) {
	for _, c := range s.word().pod.Containers {
		ids := c.IDs(resource)
		if id != "" && slices.ContainsFunc(ids, func(have string) bool { return normal(have) == normal(id) }) || id == "" && len(ids) > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// idsOf are the IDs of a resource that were allocated to the container.
func (s *search) idsOf(resource string) ([]string, error) {
	w := s.word()
	v, claimed := s.env.of(resource)
	switch {
	case w.err != nil && w.absent:
		return nil, &UnansweredError{fmt.Errorf("resource %q: %w", resource, w.err)}
	case w.err != nil:
		return nil, fmt.Errorf("resource %q: %w", resource, w.err)
	case !w.answered && claimed:
		return v.ids, nil
	case !w.answered:
		return nil, &UnansweredError{fmt.Errorf("resource %q: none of it was allocated to the container (no variable %s, and no kubelet's socket to ask); "+
			"request it under resources.limits: %w", resource, envPrefix+envKey(resource), errdefs.ErrNotFound)}
	case !w.listed:
		return nil, &UnlistedError{Resource: resource, Claimed: claimed}
	}
	ids := w.own.IDs(resource)
	for _, id := range v.ids {
		if !s.gave(id) {
			return nil, s.forged(v, id)
		}
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("resource %q: the kubelet allocated none of it to the container; request it under resources.limits: %w", resource, errdefs.ErrNotFound)
	}
	return ids, nil
}

// gave reports whether the kubelet gave a device to the container, from whatever
// resource and under whatever ID.
func (s *search) gave(id string) bool {
	for _, r := range s.w.own.Resources {
		for _, have := range r.IDs {
			if normal(have) == normal(id) {
				return true
			}
			if isPCIAddress(have) {
				continue
			}
			if d, ok := deviceOf(s.pluginFile(r.Name, have).info); ok && d.has(id) {
				return true
			}
		}
	}
	return slices.ContainsFunc(s.w.own.Claims, func(c allocation.ClaimDevice) bool {
		return c.Device == id || isPCIAddress(id) && c.Device == claimName(normal(id))
	})
}

// forged is a device that the environment claims and the kubelet did not give.
func (s *search) forged(v variable, id string) error {
	says := "it was given to no container of the pod"
	for _, c := range s.w.pod.Containers {
		for _, r := range c.Resources {
			if slices.ContainsFunc(r.IDs, func(have string) bool { return normal(have) == normal(id) }) {
				says = fmt.Sprintf("it is container %q's", c.Name)
			}
		}
	}
	return &ConflictError{On: "whose device " + quote(id) + " is",
		First: Claim{FromEnvironment(v.name), "it is this container's"}, Second: Claim{s.w.from, says}, Hint: hintForged}
}

// mine completes a device of which it is settled that it was allocated to this
// container.
func (s *search) mine(a *Attachment) {
	d, ok := deviceOf(a.Info)
	a.Owner, a.OwnerFrom = OwnedHere, s.word().from
	if a.Device = normal(a.DeviceID); ok && !d.has(a.DeviceID) {
		a.Device = d.name()
	}
	if !s.word().answered {
		if v, ok := s.env.claims(a.DeviceID, a.Resource); ok {
			s.believe(a, v)
		}
	}
	if ok {
		s.complete(a)
	}
}
