// SPDX-License-Identifier: Apache-2.0

package allocation

import "slices"

// PodKey says which pod is meant.
type PodKey struct {
	Namespace string
	Name      string
	// UID tells this pod from an earlier one of the same name: its UID, or its
	// sandbox's ID. Answers to questions without one are not kept.
	UID string
}

// String is "namespace/name".
func (k PodKey) String() string { return k.Namespace + "/" + k.Name }

// Allocation is what the kubelet gave to the containers of one pod. It is sorted
// throughout and the caller's own.
type Allocation struct {
	Namespace  string
	Name       string
	Socket     string // host path of the socket that said so
	Containers []Container
}

// Container is what one container was given. Containers without devices are listed.
type Container struct {
	Name      string
	Resources []Resource    // from device plugins, by name
	Claims    []ClaimDevice // from dynamic resource allocation
}

// Resource is a device plugin's resource and the IDs of its devices.
type Resource struct {
	Name string   // "intel.com/sriov_netdevice"
	IDs  []string // "0000:03:00.3"; what an ID means is the plugin's affair
}

// ClaimDevice is one device of a resource claim.
type ClaimDevice struct {
	Namespace string // of the claim
	Claim     string // the claim's name
	Driver    string
	Pool      string
	Device    string
	ShareID   string   // "" unless the device is shared
	CDI       []string // qualified CDI names
}

// Container is the container of that name; ok is false when the pod has none.
func (a Allocation) Container(name string) (c Container, ok bool) {
	for _, c := range a.Containers {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// IDs is the device IDs of a resource, nil when the container has none of it.
func (c Container) IDs(resource string) []string {
	for _, r := range c.Resources {
		if r.Name == resource {
			return r.IDs
		}
	}
	return nil
}

// Clone copies everything that can be changed.
func (a Allocation) Clone() Allocation {
	a.Containers = slices.Clone(a.Containers)
	for i := range a.Containers {
		c := &a.Containers[i]
		c.Resources = slices.Clone(c.Resources)
		for j := range c.Resources {
			c.Resources[j].IDs = slices.Clone(c.Resources[j].IDs)
		}
		c.Claims = slices.Clone(c.Claims)
		for j := range c.Claims {
			c.Claims[j].CDI = slices.Clone(c.Claims[j].CDI)
		}
	}
	return a
}
