// SPDX-License-Identifier: Apache-2.0

package allocation

// Allocation lists the devices that the kubelet allocated to the containers of one pod. All its
// lists are sorted.
type Allocation []Container

// Container is one container with its devices. Containers without devices are included.
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

// Container returns the container with that name. ok is false if the pod does not have it.
func (a Allocation) Container(name string) (c Container, ok bool) {
	for _, c := range a {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// IDs returns the container's device IDs of a resource, or nil.
func (c Container) IDs(resource string) []string {
	for _, r := range c.Resources {
		if r.Name == resource {
			return r.IDs
		}
	}
	return nil
}
