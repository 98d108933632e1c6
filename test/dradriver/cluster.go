// SPDX-License-Identifier: Apache-2.0

package dradriver

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/containerd/errdefs"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/resourceslice"
)

// NameAttribute is the attribute of each device in the ResourceSlice that has the device's name, in the domain of
// the driver.
const NameAttribute = "name"

// StartInCluster starts a driver on the node "node" of a cluster, and publishes its devices there. cdiDir is the
// runtime's directory of CDI files. The kubelet calls the driver.
func StartInCluster(ctx context.Context, kubeconfig []byte, cdiDir, name string, devices ...Device) (*Driver, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	d := &Driver{name: name, cdiDir: cdiDir, claims: map[types.UID]Claim{}, devices: map[string]Device{}}
	for _, dev := range devices {
		d.devices[dev.Name] = dev
	}
	if err := d.start(ctx, "/", config); err != nil {
		return nil, err
	}
	var published []resourceapi.Device
	for _, device := range slices.Sorted(maps.Keys(d.devices)) {
		published = append(published, resourceapi.Device{Name: device, Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			NameAttribute: {StringValue: &device}}})
	}
	if err := d.helper.PublishResources(ctx, resourceslice.DriverResources{
		Pools: map[string]resourceslice.Pool{pool: {Slices: []resourceslice.Slice{{Devices: published}}}}}); err != nil {
		d.helper.Stop()
		return nil, fmt.Errorf("publish devices of DRA driver %q: %w", name, err)
	}
	return d, nil
}

// allocated returns a claim with the driver's devices that were allocated to it.
func (d *Driver) allocated(claim *resourceapi.ResourceClaim) Claim {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c, ok := d.claims[claim.UID]; ok {
		return c
	}
	c := Claim{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID, PodClaim: claim.Annotations[resourceapi.PodResourceClaimAnnotation]}
	for _, r := range claim.Status.Allocation.Devices.Results {
		if dev, ok := d.devices[r.Device]; ok && r.Driver == d.name {
			dev.Request = r.Request
			c.Devices = append(c.Devices, dev)
		}
	}
	d.claims[c.UID] = c
	return c
}

// PreparedClaim returns the claim that has a device, as the kubelet had it prepared.
func (d *Driver) PreparedClaim(device string) (Claim, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.claims {
		if slices.ContainsFunc(c.Devices, func(dev Device) bool { return dev.Name == device }) {
			c.Devices = slices.Clone(c.Devices)
			return c, nil
		}
	}
	return Claim{}, fmt.Errorf("no prepared claim has the device %q: %w", device, errdefs.ErrNotFound)
}
