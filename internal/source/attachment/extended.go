// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

// This file finds the devices of extended resources that DRA drivers serve (KEP-5004). The scheduler
// creates one claim per pod for them, and the Pod Resources API lists all devices of the claim for every
// container. So a device takes two more steps: the pod object of the Pods API maps a container's resource to a
// request of the claim, and the driver's metadata maps the request to its device.

// extendedResourceClaim returns the claim that Kubernetes created for a pod's extended resources, or "".
// Its name is generated from <pod>-extended-resources-.
func extendedResourceClaim(claims []allocation.ClaimDevice) string {
	for _, cl := range claims {
		if isExtendedResourceClaim(cl.Claim) {
			return cl.Namespace + "/" + cl.Claim
		}
	}
	return ""
}

func isExtendedResourceClaim(claim string) bool {
	return strings.Contains(claim, "-extended-resources-")
}

// extendedResource returns the container's devices of an extended resource that a DRA driver serves, or
// the device with an ID, which is the device's name or PCI address.
func (s *Search) extendedResource(resource, id string) ([]Attachment, error) {
	claims := s.kubelet.allocation().container.Claims
	claim := extendedResourceClaim(claims)
	pod, err := s.kubelet.podObject()
	if err != nil {
		return nil, s.kubelet.noPodsError(resource, claim, err)
	}
	requests := pod.Requests(s.q.Container, resource)
	if len(requests) == 0 {
		return nil, fmt.Errorf("resource %q: no request of resource claim %q is for it and this container; request it "+
			"under resources.limits: %w", resource, claim, errdefs.ErrNotFound)
	}
	if !slices.ContainsFunc(claims, func(cl allocation.ClaimDevice) bool { return s.kubelet.isExtended(pod, &cl) }) {
		return nil, &ConflictError{On: "which claim is for the extended resources of the pod",
			First:  Claim{FromKubelet(s.opts.PodsSocket), "claim " + diag.Quote(s.q.Namespace+"/"+pod.ExtendedClaim)},
			Second: Claim{s.kubelet.allocation().source, "claim " + diag.Quote(claim)}, Hint: hintRecreate}
	}
	var out []Attachment
	for _, request := range requests {
		found, err := s.devicesOfRequest(pod, request)
		if err != nil {
			return nil, fmt.Errorf("resource %q: %w", resource, err)
		}
		for i := range found {
			found[i].Resource = resource
		}
		out = append(out, found...)
	}
	if id == "" {
		return out, nil
	}
	var names []string
	for _, a := range out {
		if a.DeviceID == id || a.Device != "" && a.Device == canonicalID(id) {
			return []Attachment{a}, nil
		}
		names = append(names, a.DeviceID)
	}
	return nil, fmt.Errorf("resource %q: device %q is not allocated to the container, which has %s: %w", resource, id,
		strings.Join(names, ", "), errdefs.ErrNotFound)
}

// noPodsError returns the error for an extended resource of a DRA driver without the Pods API.
func (k *kubeletQuery) noPodsError(resource, claim string, err error) error {
	return fmt.Errorf("resource %q: the kubelet lists no device IDs, but resource claim %q, which Kubernetes created "+
		"for extended resources of a DRA driver, and only the kubelet's Pods API says which devices of a claim are of "+
		"which resource: %w; run a kubelet of Kubernetes 1.37 or later with the feature gate PodsAPI and mount %s here "+
		"(kubelet.podsSocket), or remove \"resource:%s\" from the annotation: the driver injects the devices, and a rule "+
		"can grant what their metadata describes; to request one of several, use a ResourceClaim under resourceClaims in "+
		"place of resources.limits", resource, claim, err, cmp.Or(k.opts.PodsSocket, "its socket"), resource)
}

// isExtended reports whether a device belongs to the claim for the pod's extended resources. Kubelets of 1.37
// omit the claim's name from the pod object; the claim is then recognised by its generated name.
func (k *kubeletQuery) isExtended(pod *allocation.Pod, cl *allocation.ClaimDevice) bool {
	matches := cl.Claim == pod.ExtendedClaim || pod.ExtendedClaim == "" && isExtendedResourceClaim(cl.Claim)
	return matches && cl.Namespace == k.q.Namespace
}

// devicesOfRequest returns the devices that were allocated for a request of the claim for extended resources.
// The kubelet lists the devices, and the driver's metadata has the request of each.
func (s *Search) devicesOfRequest(pod *allocation.Pod, request string) (found []Attachment, err error) {
	answer := s.kubelet.allocation()
	var damaged error
	var claim string
	var drivers []string
	for _, cl := range answer.container.Claims {
		if !s.kubelet.isExtended(pod, &cl) {
			continue
		}
		c := s.files.describeClaimed(cl)
		if base, _, _ := strings.Cut(c.Request, "/"); c.meta == nil || base != request {
			claim = cl.Claim
			damaged = cmp.Or(damaged, c.err)
			drivers = append(drivers, cl.Driver)
			continue
		}
		a := c.newAttachment(answer.source)
		s.compareInterface(&a)
		s.compareSocket(&a)
		found = append(found, a)
	}
	switch {
	case len(found) > 0:
		return found, nil
	case damaged != nil:
		return nil, damaged
	}
	slices.Sort(drivers)
	return nil, fmt.Errorf("request %q of resource claim %q has no device metadata of a driver (%s) below %s, so its "+
		"device is unknown; use a driver that writes device metadata (KEP-5304), or remove the request from the "+
		"annotation: the driver injects the device: %w", request, s.q.Namespace+"/"+claim,
		strings.Join(slices.Compact(drivers), ", "), cmp.Or(s.opts.PluginsDir, "kubelet.pluginsDir"), errdefs.ErrNotFound)
}

// resourceOfClaimed returns the extended resource that a claimed device was requested as, or "".
func (k *kubeletQuery) resourceOfClaimed(c *ClaimedDevice) string {
	if !isExtendedResourceClaim(c.Claim) {
		return ""
	}
	pod, err := k.podObject()
	if err != nil || !k.isExtended(pod, &allocation.ClaimDevice{Namespace: c.Namespace, Claim: c.Claim}) {
		return ""
	}
	request, _, _ := strings.Cut(c.Request, "/")
	return pod.Resource(k.q.Container, request)
}
