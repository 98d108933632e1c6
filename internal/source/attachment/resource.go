// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

// Resource returns the container's devices of an extended resource, or the device with the given
// ID, from the device plugin's files (Device Information Specification, §4.1). The error is
// errdefs.ErrNotFound for a resource or device that is not allocated to the container, and a
// *ConflictError if the container's environment contradicts the kubelet. Other errors concern the
// query to the kubelet.
func (s *Search) Resource(resource, id string) ([]Attachment, error) {
	ids, err := s.allocatedIDs(resource)
	if err != nil {
		if u, ok := errors.AsType[*UnlistedError](err); ok {
			u.Holders = s.kubelet.containersWith(resource, id)
		}
		return nil, err
	}
	if len(ids) == 0 {
		return s.extendedResource(resource, id)
	}
	if id != "" {
		i := slices.IndexFunc(ids, func(s string) bool { return canonicalID(s) == canonicalID(id) })
		if i < 0 {
			hint := diag.MalformedPCIAddress(id)
			if hint != "" {
				hint = "; " + hint
			}
			return nil, fmt.Errorf("resource %q: device %q is not allocated to the container, which has %s%s: %w",
				resource, id, strings.Join(ids, ", "), hint, errdefs.ErrNotFound)
		}
		ids = ids[i : i+1]
	}
	out := make([]Attachment, 0, len(ids))
	for _, id := range ids {
		a, ok := s.files.describeAllocated(resource, id)
		if !ok {
			p := s.files.readPlugin(resource, id)
			a.File = p.path
			a.Err = fmt.Errorf("device %q of resource %q: the device plugin wrote no device-info file %q, and the "+
				"ID is not a PCI address: %w",
				id, resource, p.path, errdefs.ErrNotFound)
		}
		s.markOwned(&a)
		out = append(out, a)
	}
	return out, nil
}

// containersWith returns the pod's containers that have a resource or, with an ID, that device of
// it.
func (k *kubeletQuery) containersWith(resource, id string) (names []string) {
	for _, c := range k.allocation().pod {
		ids := c.IDs(resource)
		if id != "" && containsID(ids, id) || id == "" && len(ids) > 0 {
			names = append(names, c.Name)
		}
	}
	return names
}

// allocatedIDs returns the IDs of a resource that are allocated to the container. It returns none for a
// container with a claim for extended resources, which has no IDs.
func (o *owners) allocatedIDs(resource string) ([]string, error) {
	answer := o.kubelet.allocation()
	v, claimed := o.env.variableOf(resource)
	// An absent kubelet is reported separately, because the environment can replace it unless it is
	// required.
	switch {
	case answer.err != nil && answer.absent:
		return nil, &UnansweredError{fmt.Errorf("resource %q: %w", resource, answer.err)}
	case answer.err != nil:
		return nil, fmt.Errorf("resource %q: %w", resource, answer.err)
	case !answer.answered && claimed:
		return v.ids, nil
	case !answer.answered:
		return nil, &UnansweredError{fmt.Errorf("resource %q: none of it is allocated to the container (there is "+
			"no variable %s, and the kubelet has no socket to ask); "+
			"request it under resources.limits: %w", resource, envPrefix+envKey(resource), errdefs.ErrNotFound)}
	case !answer.listed:
		return nil, &UnlistedError{Resource: resource, Claimed: claimed}
	}
	ids := answer.container.IDs(resource)
	for _, id := range v.ids {
		if !o.isAllocated(id) {
			return nil, o.forgedError(v, id)
		}
	}
	if len(ids) == 0 && extendedResourceClaim(answer.container.Claims) == "" {
		return nil, fmt.Errorf("resource %q: the kubelet allocated none of it to the container; request it under "+
			"resources.limits: %w", resource, errdefs.ErrNotFound)
	}
	return ids, nil
}

// isAllocated reports whether the kubelet allocated a device to the container, from any resource
// and under any ID.
func (o *owners) isAllocated(id string) bool {
	for _, r := range o.kubelet.answer.container.Resources {
		if containsID(r.IDs, id) {
			return true
		}
		for _, other := range r.IDs {
			if isPCIAddress(other) {
				continue
			}
			if d, ok := deviceOf(o.files.readPlugin(r.Name, other).info); ok && d.matchesID(id) {
				return true
			}
		}
	}
	return slices.ContainsFunc(o.kubelet.answer.container.Claims, func(cl allocation.ClaimDevice) bool {
		if !isPCIAddress(id) {
			return cl.Device == id
		}
		c := o.files.describeClaimed(cl)
		ok, err := c.isDevice(device{pci: canonicalID(id)})
		return ok && err == nil
	})
}

// forgedError returns the error for a device in the environment that the kubelet did not allocate.
func (o *owners) forgedError(v variable, id string) error {
	statement := "it is allocated to no container of the pod"
	for _, c := range o.kubelet.answer.pod {
		for _, r := range c.Resources {
			if containsID(r.IDs, id) {
				statement = fmt.Sprintf("it is container %q's", c.Name)
			}
		}
	}
	return &ConflictError{On: "whose device " + diag.Quote(id) + " is",
		First:  Claim{FromEnvironment(v.name), "it is this container's"},
		Second: Claim{o.kubelet.answer.source, statement}, Hint: hintForged}
}

// markOwned completes the description of a device that is allocated to this container.
func (o *owners) markOwned(a *Attachment) {
	d, ok := deviceOf(a.Info)
	a.Owner, a.OwnerFrom = OwnedHere, o.kubelet.allocation().source
	if a.Device = canonicalID(a.DeviceID); ok && !d.matchesID(a.DeviceID) {
		a.Device = d.sysfsName()
	}
	if !o.kubelet.allocation().answered {
		if v, ok := o.env.variableWithID(a.DeviceID, a.Resource); ok {
			o.trustVariable(a, v)
		}
	}
	if ok {
		o.addFromInfoVariable(a)
	}
}
