// SPDX-License-Identifier: Apache-2.0

package kubelet

import v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

// Pod returns a pod of an answer.
func Pod(namespace, name string, containers ...*v1.ContainerResources) *v1.PodResources {
	return &v1.PodResources{Namespace: namespace, Name: name, Containers: containers}
}

// Container returns a container of an answer; see [Device] and [Claim].
func Container(name string, with ...func(*v1.ContainerResources)) *v1.ContainerResources {
	c := &v1.ContainerResources{Name: name}
	for _, w := range with {
		w(c)
	}
	return c
}

// Device adds devices of a resource to a container, one entry each, as the kubelet lists
// them.
func Device(resource string, ids ...string) func(*v1.ContainerResources) {
	return func(c *v1.ContainerResources) {
		for _, id := range ids {
			c.Devices = append(c.Devices, &v1.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
		}
	}
}

// Claim adds one device of a resource claim to a container, with its CDI names.
func Claim(namespace, claim, driver, device string, cdi ...string) func(*v1.ContainerResources) {
	return func(c *v1.ContainerResources) {
		r := &v1.ClaimResource{DriverName: driver, PoolName: "node", DeviceName: device}
		for _, name := range cdi {
			r.CdiDevices = append(r.CdiDevices, &v1.CDIDevice{Name: name})
		}
		c.DynamicResources = append(c.DynamicResources, &v1.DynamicResource{
			ClaimNamespace: namespace, ClaimName: claim, ClaimResources: []*v1.ClaimResource{r},
		})
	}
}
