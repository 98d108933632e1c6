// SPDX-License-Identifier: Apache-2.0

package allocation

import "slices"

// PodKey identifies a pod.
type PodKey struct {
	Namespace string
	Name      string
	// UID is the pod's UID, or its sandbox's ID. It tells the pod from an earlier pod of
	// the same name. Without UID, answers are not kept.
	UID string
}

// String returns "namespace/name".
func (k PodKey) String() string { return k.Namespace + "/" + k.Name }

// Allocation is the devices that the kubelet allocated to the containers of one pod. All
// its lists are sorted, and the caller may change them.
type Allocation struct {
	Namespace  string
	Name       string
	Socket     string // host path of the kubelet's socket
	Containers []Container
}

// Container is one container with its devices. Containers without devices are listed.
type Container struct {
	Name      string
	Resources []Resource    // from device plugins, by name
	Claims    []ClaimDevice // from dynamic resource allocation
}

// Resource is a device plugin's resource and the IDs of its devices.
type Resource struct {
	Name string   // "intel.com/sriov_netdevice"
	IDs  []string // "0000:03:00.3"; the device plugin defines the form
}

// ClaimDevice is one device of a resource claim.
type ClaimDevice struct {
	Namespace string // of the claim
	Claim     string // the claim's name
	Driver    string // "sriov.example.com"; "" if the kubelet does not list it
	Pool      string
	Device    string // its name in the driver's pool
}

// Container returns the container of that name; ok is false if the pod has none.
func (a Allocation) Container(name string) (c Container, ok bool) {
	for _, c := range a.Containers {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// IDs returns the device IDs of a resource, or nil if the container has none.
func (c Container) IDs(resource string) []string {
	for _, r := range c.Resources {
		if r.Name == resource {
			return r.IDs
		}
	}
	return nil
}

// Clone returns a deep copy.
func (a Allocation) Clone() Allocation {
	a.Containers = slices.Clone(a.Containers)
	for i := range a.Containers {
		c := &a.Containers[i]
		c.Resources = slices.Clone(c.Resources)
		for j := range c.Resources {
			c.Resources[j].IDs = slices.Clone(c.Resources[j].IDs)
		}
		c.Claims = slices.Clone(c.Claims)
	}
	return a
}
