// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/internal/kubename"
	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// Limits of one pod in an answer. Kubernetes stays far below them.
const (
	maxContainers = 1024  // containers of a pod
	maxDevices    = 16384 // device IDs and claim devices of a container
	maxText       = 1024  // bytes of one ID or name
)

// The types of an answer; see package allocation.
type (
	Allocation  = allocation.Allocation
	Container   = allocation.Container
	Resource    = allocation.Resource
	ClaimDevice = allocation.ClaimDevice
)

// findPod finds and validates the pod in the answer of List. Other pods are ignored.
func (q query) findPod(answer *v1.ListPodResourcesResponse) (Allocation, error) {
	first := -1
	pods := answer.GetPodResources()
	for i, pod := range pods {
		switch {
		case pod.GetName() != q.name || pod.GetNamespace() != q.namespace:
		case first < 0:
			first = i
		case !proto.Equal(pod, pods[first]):
			return nil, q.newFieldError(errdefs.ErrConflict, fmt.Sprintf("pod_resources[%d]", i),
				"the pod is already listed as item %d, with other devices", first)
		}
	}
	if first < 0 {
		return nil, q.newError(errdefs.ErrNotFound, "", "the kubelet does not list the pod")
	}
	return q.validatePod(pods[first], fmt.Sprintf("pod_resources[%d]", first))
}

// validatePod checks and converts the pod's devices in an answer. at is their field.
func (q query) validatePod(pod *v1.PodResources, at string) (Allocation, error) {
	var a Allocation
	if n := len(pod.GetContainers()); n > maxContainers {
		return nil, q.newFieldError(errdefs.ErrInvalidArgument, at+".containers", "it has %d items, more than %d", n, maxContainers)
	}
	for i, in := range pod.GetContainers() {
		at := fmt.Sprintf("%s.containers[%d]", at, i)
		c, err := q.validateContainer(in, at)
		if err != nil {
			return nil, err
		}
		if _, twice := a.Container(c.Name); twice {
			return nil, q.newFieldError(errdefs.ErrConflict, at+".name", "container %q is listed twice", c.Name)
		}
		a = append(a, c)
	}
	slices.SortFunc(a, func(x, y Container) int { return strings.Compare(x.Name, y.Name) })
	return a, nil
}

func (q query) validateContainer(in *v1.ContainerResources, at string) (Container, error) {
	c := Container{Name: in.GetName()}
	if !kubename.IsLabel(c.Name) {
		return c, q.newFieldError(errdefs.ErrInvalidArgument, at+".name", "%.100q is not a container name (a DNS label of 1 to 63 characters)", c.Name)
	}
	total := 0
	ids := map[string][]string{}
	for i, d := range in.GetDevices() {
		at := fmt.Sprintf("%s.devices[%d]", at, i)
		if err := q.checkText(d.GetResourceName(), at+".resource_name"); err != nil {
			return c, err
		}
		// The kubelet lists one entry per device and NUMA node, so a resource has several
		// entries, and an ID can occur twice.
		list := ids[d.GetResourceName()]
		if total += len(d.GetDeviceIds()); total > maxDevices {
			return c, q.newFieldError(errdefs.ErrInvalidArgument, at+".device_ids", "the container has more than %d devices", maxDevices)
		}
		for j, id := range d.GetDeviceIds() {
			if err := q.checkText(id, fmt.Sprintf("%s.device_ids[%d]", at, j)); err != nil {
				return c, err
			}
			list = append(list, id)
		}
		ids[d.GetResourceName()] = list
	}
	for name, list := range ids {
		slices.Sort(list)
		c.Resources = append(c.Resources, Resource{Name: name, IDs: slices.Compact(list)})
	}
	slices.SortFunc(c.Resources, func(x, y Resource) int { return strings.Compare(x.Name, y.Name) })
	for i, r := range in.GetDynamicResources() {
		at := fmt.Sprintf("%s.dynamic_resources[%d]", at, i)
		if total += len(r.GetClaimResources()); total > maxDevices {
			return c, q.newFieldError(errdefs.ErrInvalidArgument, at+".claim_resources", "the container has more than %d devices", maxDevices)
		}
		claims, err := q.validateClaim(r, at)
		if err != nil {
			return c, err
		}
		c.Claims = append(c.Claims, claims...)
	}
	slices.SortFunc(c.Claims, func(x, y ClaimDevice) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Claim, y.Claim),
			strings.Compare(x.Driver, y.Driver), strings.Compare(x.Pool, y.Pool), strings.Compare(x.Device, y.Device))
	})
	return c, nil
}

// validateClaim returns the devices of a claim. Kubelets before 1.31 list only their CDI names, which say
// nothing of whose a device is.
func (q query) validateClaim(r *v1.DynamicResource, at string) ([]ClaimDevice, error) {
	if err := q.checkText(r.GetClaimNamespace(), at+".claim_namespace"); err != nil {
		return nil, err
	}
	if err := q.checkText(r.GetClaimName(), at+".claim_name"); err != nil {
		return nil, err
	}
	var out []ClaimDevice
	for i, cr := range r.GetClaimResources() {
		if cr.GetDeviceName() == "" {
			continue
		}
		for _, f := range []struct{ name, text string }{{"driver_name", cr.GetDriverName()}, {"pool_name", cr.GetPoolName()}, {"device_name", cr.GetDeviceName()}} {
			if f.text == "" {
				continue
			}
			if err := q.checkText(f.text, fmt.Sprintf("%s.claim_resources[%d].%s", at, i, f.name)); err != nil {
				return nil, err
			}
		}
		out = append(out, ClaimDevice{Namespace: r.GetClaimNamespace(), Claim: r.GetClaimName(), Driver: cr.GetDriverName(), Pool: cr.GetPoolName(), Device: cr.GetDeviceName()})
	}
	return out, nil
}

// checkText accepts a name or ID: short, printable, without spaces at its ends.
func (q query) checkText(s, field string) error {
	switch {
	case s == "":
		return q.newFieldError(errdefs.ErrInvalidArgument, field, "it is empty")
	case len(s) > maxText:
		return q.newFieldError(errdefs.ErrInvalidArgument, field, "it has %d bytes, more than %d", len(s), maxText)
	case !utf8.ValidString(s):
		return q.newFieldError(errdefs.ErrInvalidArgument, field, "%.100q is not UTF-8", s)
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return q.newFieldError(errdefs.ErrInvalidArgument, field, "%.100q has characters that are invalid in an ID or name", s)
	}
	return nil
}
