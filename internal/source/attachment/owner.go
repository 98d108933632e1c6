// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/source/kubelet/allocation"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// This file determines the container that owns a device. If the kubelet has a socket, its list
// decides alone, and an environment variable that contradicts it is a conflict: a pod's author can
// set variables.

// owners finds the container that owns each device of a pod. It reads every source at most once.
type owners struct {
	*Finder
	q        *Query
	kubelet  *kubeletQuery
	files    *deviceFiles
	env      environment
	records  map[string]interfaceRecord // from libcni, by interface
	attached []Attachment               // to the networks

	names     []string // of the device plugins' directory, if listed
	listed    bool
	resources map[string]string // of variables, by the variable's key
}

// holder is a container of the pod to which the kubelet allocated a device.
type holder struct {
	container string
	resource  string         // "" for a device of a claim
	id        string         // device plugin's ID
	device    string         // the PCI address or vDPA name behind id
	claimed   *claimedDevice // set for a device of a resource claim
	byName    bool           // id identifies the vDPA device itself, not its PCI function
}

// holdersOf returns the containers to which the kubelet allocated a device, this container first.
func (o *owners) holdersOf(a *Attachment, d device) ([]holder, error) {
	answer := o.kubelet.allocation()
	var all []holder
	// A container that is not listed has neither devices nor a name.
	order := append([]allocation.Container{answer.container}, answer.pod...)
	for i, c := range order {
		if i > 0 && c.Name == answer.container.Name {
			continue
		}
		for _, r := range c.Resources {
			for _, id := range r.IDs {
				h, ok, err := o.matchesDevice(a, r.Name, id, d)
				if err != nil {
					return nil, err
				}
				if ok {
					h.container = c.Name
					all = append(all, h)
				}
			}
		}
		for _, cl := range c.Claims {
			claimed := o.files.describeClaimed(cl)
			ok, err := claimed.isDevice(d)
			if err != nil {
				return nil, err
			}
			if !ok || c.Name == o.q.Container && !o.files.isUsed(&claimed) {
				continue
			}
			h := holder{container: c.Name, id: cl.Device, device: d.pci, claimed: &claimed,
				byName: cl.Device == d.sysfsName()}
			if h.byName {
				h.device = d.sysfsName()
			}
			all = append(all, h)
		}
	}
	if d.vdpa == "" {
		return all, nil
	}
	// Several vDPA devices can share a PCI function, so a container with the vDPA device
	// itself comes before a container with the function.
	if exact := slices.DeleteFunc(slices.Clone(all), func(h holder) bool { return !h.byName }); len(exact) > 0 {
		return exact, nil
	}
	return all, nil
}

// matchesDevice reports whether a device plugin's ID identifies device d. The plugin's file decides
// if it exists, otherwise the ID itself.
func (o *owners) matchesDevice(a *Attachment, resource, id string, d device) (h holder, ok bool, err error) {
	h = holder{resource: resource, id: id, device: canonicalID(id), byName: id == d.vdpa}
	direct := d.matchesID(id)
	if !direct && isPCIAddress(id) && d.pci != "" {
		return h, false, nil // another function
	}
	p := o.files.readPlugin(resource, id)
	other, described := deviceOf(p.info)
	switch {
	case !described:
		return h, direct, nil
	case other.isSame(d):
		if h.byName = other.vdpa == d.vdpa; !direct {
			h.device = other.sysfsName()
		}
		return h, true, nil
	case direct:
		return h, false, &ConflictError{On: deviceQuestion(a), First: Claim{a.File, d.String()},
			Second: Claim{p.path, other.String()}, Hint: hintRecreate}
	}
	return h, false, nil
}

// findVariable returns the variable of the container's environment that lists a device, and the
// device's ID in it.
func (o *owners) findVariable(a *Attachment, d device) (v variable, id string, ok bool) {
	for _, v := range o.env {
		for _, id := range v.ids {
			if d.matchesID(id) {
				return v, id, true
			}
			if isPCIAddress(id) && d.pci != "" {
				continue
			}
			resource := o.resourceOf(v)
			if resource == "" {
				continue
			}
			if h, ok, err := o.matchesDevice(a, resource, id, d); ok && err == nil {
				return v, h.id, true
			}
		}
	}
	return variable{}, "", false
}

// findOwner sets the owner of the attachment's device.
func (o *owners) findOwner(a *Attachment) {
	d, ok := deviceOf(a.Info)
	if !ok || a.Err != nil || o.q.Wanted != nil && !o.q.Wanted(a) {
		return
	}
	switch answer := o.kubelet.allocation(); {
	case answer.err != nil:
		a.reject(fmt.Errorf("find the owner of %s: %w", d, answer.err))
		return
	case answer.answered:
		o.setOwnerFromKubelet(a, d)
	default:
		o.setOwnerFromEnvironment(a, d)
	}
	if a.Owner == OwnedHere {
		o.addFromInfoVariable(a)
	}
}

const hintForged = "remove the variable from the pod's spec: device plugins set it"

// setOwnerFromKubelet sets the owner from the kubelet's response, which alone decides. An
// environment variable that contradicts it is a conflict.
func (o *owners) setOwnerFromKubelet(a *Attachment, d device) {
	answer := o.kubelet.allocation()
	hs, err := o.holdersOf(a, d)
	if err != nil {
		a.reject(err)
		return
	}
	v, id, claimed := o.findVariable(a, d)
	// The container itself comes first: a device that it shares with another container is its own.
	switch {
	case len(hs) > 0 && hs[0].container == o.q.Container:
		h := hs[0]
		a.Owner, a.OwnerFrom, a.DeviceID, a.Device = OwnedHere, answer.source, h.id, h.device
		if h.resource != "" {
			a.Resource = h.resource
		} else if err := o.setClaimed(a, h.claimed, d); err != nil {
			a.reject(err)
			return
		}
		for _, other := range hs[1:] {
			if other.container != o.q.Container {
				a.Notes = append(a.Notes, fmt.Sprintf("the kubelet also allocated the device to container %q",
					other.container))
				break
			}
		}
	case claimed && answer.listed:
		statement := "it is allocated to no container of the pod"
		if len(hs) > 0 {
			statement = fmt.Sprintf("it is container %q's", hs[0].container)
		}
		a.reject(&ConflictError{On: "whose " + d.String() + " is", Second: Claim{answer.source, statement},
			Hint:  hintForged,
			First: Claim{FromEnvironment(v.name), fmt.Sprintf("device %s is this container's", diag.Quote(id))}})
		return
	case len(hs) > 0:
		a.Owner, a.OwnerFrom, a.DeviceID = OwnedElsewhere, answer.source, hs[0].id
		if hs[0].resource != "" {
			a.Resource = hs[0].resource
		}
		a.Notes = append(a.Notes, fmt.Sprintf("the kubelet allocated the device to container %q", hs[0].container))
	default:
		a.Notes = append(a.Notes, "the kubelet allocated the device to no container of the pod")
	}
	if !answer.listed {
		a.Notes = append(a.Notes, unlisted)
	}
}

// setClaimed records that the attachment's device belongs to a resource claim. The claim's metadata
// must not contradict the network's sources.
func (o *owners) setClaimed(a *Attachment, c *claimedDevice, d device) error {
	a.Notes = append(a.Notes, "the device is one of resource claim "+diag.Quote(c.Namespace+"/"+c.Claim))
	if c.meta == nil || c.meta.VhostUserPath == "" { // else it describes a socket, and the function may be its switch's
		if err := o.compareWithClaim(a, &c.ClaimedDevice, d.String()); err != nil {
			return err
		}
	}
	claimed := c.ClaimedDevice
	a.Claimed = &claimed
	return nil
}

const unlisted = "the kubelet does not list this container, because it lists no init container and no ephemeral " +
	"container: none of the pod's devices is delivered to it"

// setOwnerFromEnvironment sets the owner if the kubelet has no socket and is not required.
func (o *owners) setOwnerFromEnvironment(a *Attachment, d device) {
	v, id, ok := o.findVariable(a, d)
	if !ok {
		a.Notes = append(a.Notes, "the kubelet has no socket to ask, and no variable "+envPrefix+
			"* of the container has the device")
		return
	}
	a.DeviceID, a.Device = id, canonicalID(id)
	if !d.matchesID(id) {
		a.Device = d.sysfsName() // by the device plugin's file
	}
	o.trustVariable(a, v)
}

// trustVariable makes this container the owner, because one of its variables lists the device.
func (o *owners) trustVariable(a *Attachment, v variable) {
	a.Owner, a.OwnerFrom = OwnedHere, FromEnvironment(v.name)
	if a.Resource == "" || envKey(a.Resource) != v.key {
		a.Resource = o.resourceOf(v)
	}
	a.Notes = append(a.Notes, "the kubelet has no socket to ask: "+v.name+
		" of the container is trusted, although a pod's author can set it too")
}

// addFromInfoVariable completes a device of this container from PCIDEVICE_*_INFO:
// sriov-network-device-plugin writes no vhost-net into device-info, and without device-info no RDMA
// device.
func (o *owners) addFromInfoVariable(a *Attachment) {
	for _, v := range o.env {
		e, ok := v.info[canonicalID(a.DeviceID)]
		if !ok {
			continue
		}
		a.Announced = e.nodes
		if a.Info.Type != deviceinfo.TypePCI {
			return
		}
		set := func(field *string, key, value string) {
			if *field == "" && value != "" {
				*field = value
				a.Notes = append(a.Notes, fmt.Sprintf("pci.%s is from %s: %s", key, envPrefix+v.key+infoSuffix,
					diag.Quote(value)))
			}
		}
		set(&a.Info.PCI.VhostNet, "vhost-net", e.vhostNet)
		set(&a.Info.PCI.RDMADevice, "rdma-device", e.rdma)
		return
	}
}
