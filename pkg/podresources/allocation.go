// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// What an answer may hold for one pod. Kubernetes itself stays far below.
const (
	maxContainers = 1024  // containers of a pod
	maxDevices    = 16384 // device IDs and claim devices of a container
	maxText       = 1024  // bytes of one ID or name
)

// What the kubelet says, as values; see package allocation.
type (
	Allocation  = allocation.Allocation
	Container   = allocation.Container
	Resource    = allocation.Resource
	ClaimDevice = allocation.ClaimDevice
	PodKey      = allocation.PodKey
)

// allocation checks one pod of an answer. at is the field it was found in.
func (q question) allocation(pod *v1.PodResources, at string) (Allocation, error) {
	a := Allocation{Namespace: pod.GetNamespace(), Name: pod.GetName(), Socket: q.socket}
	if a.Namespace != q.key.Namespace || a.Name != q.key.Name {
		return Allocation{}, q.bad(errdefs.ErrInvalidArgument, at, "the answer is about pod %.300q", a.Namespace+"/"+a.Name)
	}
	if n := len(pod.GetContainers()); n > maxContainers {
		return Allocation{}, q.bad(errdefs.ErrInvalidArgument, at+".containers", "it has %d items, more than %d", n, maxContainers)
	}
	for i, in := range pod.GetContainers() {
		at := fmt.Sprintf("%s.containers[%d]", at, i)
		c, err := q.container(in, at)
		if err != nil {
			return Allocation{}, err
		}
		if _, twice := a.Container(c.Name); twice {
			return Allocation{}, q.bad(errdefs.ErrConflict, at+".name", "container %q is listed twice", c.Name)
		}
		a.Containers = append(a.Containers, c)
	}
	slices.SortFunc(a.Containers, func(x, y Container) int { return strings.Compare(x.Name, y.Name) })
	return a, nil
}

func (q question) container(in *v1.ContainerResources, at string) (Container, error) {
	c := Container{Name: in.GetName()}
	if !isLabel(c.Name) {
		return c, q.bad(errdefs.ErrInvalidArgument, at+".name", "%.100q is not a container name (a DNS label of 1 to 63 characters)", c.Name)
	}
	total := 0
	ids := map[string][]string{}
	for i, d := range in.GetDevices() {
		at := fmt.Sprintf("%s.devices[%d]", at, i)
		if err := q.text(d.GetResourceName(), at+".resource_name"); err != nil {
			return c, err
		}
		// The kubelet gives one entry for each device and NUMA node: entries of one
		// resource belong together, and an ID may come twice.
		list := ids[d.GetResourceName()]
		if total += len(d.GetDeviceIds()); total > maxDevices {
			return c, q.bad(errdefs.ErrInvalidArgument, at+".device_ids", "the container has more than %d devices", maxDevices)
		}
		for j, id := range d.GetDeviceIds() {
			if err := q.text(id, fmt.Sprintf("%s.device_ids[%d]", at, j)); err != nil {
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
			return c, q.bad(errdefs.ErrInvalidArgument, at+".claim_resources", "the container has more than %d devices", maxDevices)
		}
		claims, err := q.claim(r, at)
		if err != nil {
			return c, err
		}
		c.Claims = append(c.Claims, claims...)
	}
	slices.SortStableFunc(c.Claims, compareClaims)
	return c, nil
}

func (q question) claim(r *v1.DynamicResource, at string) ([]ClaimDevice, error) {
	if err := q.text(r.GetClaimNamespace(), at+".claim_namespace"); err != nil {
		return nil, err
	}
	if err := q.text(r.GetClaimName(), at+".claim_name"); err != nil {
		return nil, err
	}
	var out []ClaimDevice
	for i, cr := range r.GetClaimResources() {
		at := fmt.Sprintf("%s.claim_resources[%d]", at, i)
		d := ClaimDevice{
			Namespace: r.GetClaimNamespace(), Claim: r.GetClaimName(),
			Driver: cr.GetDriverName(), Pool: cr.GetPoolName(), Device: cr.GetDeviceName(), ShareID: cr.GetShareId(),
		}
		for _, f := range []struct{ name, value string }{
			{"driver_name", d.Driver}, {"pool_name", d.Pool}, {"device_name", d.Device}, {"share_id", d.ShareID},
		} {
			if f.value == "" {
				continue // kubelets before 1.31 name no device, only its CDI names
			}
			if err := q.text(f.value, at+"."+f.name); err != nil {
				return nil, err
			}
		}
		if n := len(cr.GetCdiDevices()); n > maxDevices {
			return nil, q.bad(errdefs.ErrInvalidArgument, at+".cdi_devices", "it has %d items, more than %d", n, maxDevices)
		}
		for j, dev := range cr.GetCdiDevices() {
			if err := q.text(dev.GetName(), fmt.Sprintf("%s.cdi_devices[%d].name", at, j)); err != nil {
				return nil, err
			}
			d.CDI = append(d.CDI, dev.GetName())
		}
		slices.Sort(d.CDI)
		d.CDI = slices.Compact(d.CDI)
		out = append(out, d)
	}
	return out, nil
}

func compareClaims(x, y ClaimDevice) int {
	for _, pair := range [][2]string{{x.Namespace, y.Namespace}, {x.Claim, y.Claim}, {x.Driver, y.Driver},
		{x.Pool, y.Pool}, {x.Device, y.Device}, {x.ShareID, y.ShareID}} {
		if c := strings.Compare(pair[0], pair[1]); c != 0 {
			return c
		}
	}
	return slices.Compare(x.CDI, y.CDI)
}

// text accepts a name or ID: short, printable, without blanks at its ends.
func (q question) text(s, field string) error {
	switch {
	case s == "":
		return q.bad(errdefs.ErrInvalidArgument, field, "it is empty")
	case len(s) > maxText:
		return q.bad(errdefs.ErrInvalidArgument, field, "it has %d bytes, more than %d", len(s), maxText)
	case !utf8.ValidString(s):
		return q.bad(errdefs.ErrInvalidArgument, field, "%.100q is not UTF-8", s)
	case strings.TrimSpace(s) != s || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }):
		return q.bad(errdefs.ErrInvalidArgument, field, "%.100q holds characters that no ID or name has", s)
	}
	return nil
}

// isLabel is true for a DNS label (RFC 1123), which container names are.
func isLabel(s string) bool {
	if s == "" || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-') {
			return false
		}
	}
	return true
}
