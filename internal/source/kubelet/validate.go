// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
)

// Bounds on one pod in a response, in addition to the response's size. Kubernetes stays far below
// them.
const (
	maxContainers = 1024 // containers of a pod
	maxText       = 1024 // bytes of one ID or name
)

// findPod finds and validates the pod in the response of List. Other pods are ignored.
func (q query) findPod(answer *v1.ListPodResourcesResponse) (allocation.Allocation, error) {
	r := reader{query: q}
	first := -1
	pods := answer.GetPodResources()
	for i, pod := range pods {
		switch {
		case pod.GetName() != q.name || pod.GetNamespace() != q.namespace:
		case first < 0:
			first = i
		case !proto.Equal(pod, pods[first]):
			r.addFault(errdefs.ErrConflict, fmt.Sprintf("pod_resources[%d]", i),
				"the pod is already listed as item %d, with other devices", first)
		}
	}
	if first < 0 {
		return nil, q.newError(errdefs.ErrNotFound, "", "the kubelet does not list the pod")
	}
	containers := r.readContainers(pods[first].GetContainers(), fmt.Sprintf("pod_resources[%d].containers", first))
	if r.fault != nil {
		return nil, r.fault
	}
	return containers, nil
}

// reader checks and converts the devices of a pod, and keeps the first fault. Its methods'
// parameter at is the field being read.
type reader struct {
	query
	fault error
}

// addFault adds the fault of a field.
func (r *reader) addFault(sentinel error, field, format string, args ...any) {
	if r.fault == nil {
		r.fault = r.wrapDiagnostic(&diag.Diagnostic{Field: field, Rule: fmt.Sprintf(format, args...), Kind: sentinel})
	}
}

// readContainers reads the containers of a pod, sorted by name.
func (r *reader) readContainers(list []*v1.ContainerResources, at string) (all allocation.Allocation) {
	if len(list) > maxContainers {
		r.addFault(errdefs.ErrInvalidArgument, at, "it has %d items, more than %d", len(list), maxContainers)
		return nil
	}
	for i, in := range list {
		at := fmt.Sprintf("%s[%d]", at, i)
		if _, twice := all.Container(in.GetName()); twice {
			r.addFault(errdefs.ErrConflict, at+".name", "container %q is listed twice", in.GetName())
		}
		all = append(all, r.readContainer(in, at))
	}
	slices.SortFunc(all, func(x, y allocation.Container) int { return strings.Compare(x.Name, y.Name) })
	return all
}

// readContainer reads the devices of one container.
func (r *reader) readContainer(in *v1.ContainerResources, at string) allocation.Container {
	c := allocation.Container{Name: in.GetName()}
	if !name.IsLabel(c.Name) {
		r.addFault(errdefs.ErrInvalidArgument, at+".name",
			"%.100q is not a container name (a DNS label of 1 to 63 characters)", c.Name)
	}
	ids := map[string][]string{}
	for i, d := range in.GetDevices() {
		at := fmt.Sprintf("%s.devices[%d]", at, i)
		r.checkText(d.GetResourceName(), at+".resource_name")
		for j, id := range d.GetDeviceIds() {
			r.checkText(id, fmt.Sprintf("%s.device_ids[%d]", at, j))
		}
		// The kubelet lists one entry per device and NUMA node, so a resource can have several
		// entries, and an ID can occur twice.
		ids[d.GetResourceName()] = append(ids[d.GetResourceName()], d.GetDeviceIds()...)
	}
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		slices.Sort(ids[name])
		c.Resources = append(c.Resources, allocation.Resource{Name: name, IDs: slices.Compact(ids[name])})
	}
	for i, claim := range in.GetDynamicResources() {
		c.Claims = append(c.Claims, r.readClaim(claim, fmt.Sprintf("%s.dynamic_resources[%d]", at, i))...)
	}
	slices.SortFunc(c.Claims, func(x, y allocation.ClaimDevice) int {
		return cmp.Or(strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Claim, y.Claim),
			strings.Compare(x.Driver, y.Driver), strings.Compare(x.Pool, y.Pool), strings.Compare(x.Device, y.Device))
	})
	return c
}

// readClaim returns the devices of a claim. Kubelets before 1.31 list only CDI names, which do not
// identify a device's owner.
func (r *reader) readClaim(in *v1.DynamicResource, at string) (devices []allocation.ClaimDevice) {
	r.checkText(in.GetClaimNamespace(), at+".claim_namespace")
	r.checkText(in.GetClaimName(), at+".claim_name")
	for i, d := range in.GetClaimResources() {
		if d.GetDeviceName() == "" {
			continue
		}
		at := fmt.Sprintf("%s.claim_resources[%d]", at, i)
		for _, f := range []struct{ name, text string }{{"driver_name", d.GetDriverName()},
			{"pool_name", d.GetPoolName()}, {"device_name", d.GetDeviceName()}} {
			if f.text != "" {
				r.checkText(f.text, at+"."+f.name)
			}
		}
		devices = append(devices, allocation.ClaimDevice{Namespace: in.GetClaimNamespace(), Claim: in.GetClaimName(),
			Driver: d.GetDriverName(), Pool: d.GetPoolName(), Device: d.GetDeviceName()})
	}
	return devices
}

// checkText accepts a name or ID: short, printable, without spaces at its ends.
func (r *reader) checkText(s, field string) {
	switch {
	case s == "":
		r.addFault(errdefs.ErrInvalidArgument, field, "it is empty")
	case len(s) > maxText:
		r.addFault(errdefs.ErrInvalidArgument, field, "it has %d bytes, more than %d", len(s), maxText)
	case !utf8.ValidString(s):
		r.addFault(errdefs.ErrInvalidArgument, field, "%.100q is not UTF-8", s)
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		r.addFault(errdefs.ErrInvalidArgument, field, "%.100q has characters that are invalid in an ID or name", s)
	}
}
