// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"strings"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/podresources/allocation"
)

// word is what is known of who was given what, asked for at first need.
func (s *search) word() *word {
	if s.w == nil {
		w := s.ask(s.ctx, s.q)
		s.w = &w
	}
	return s.w
}

// holder is a container of the pod to which the kubelet gave a device.
type holder struct {
	container string
	resource  string // "" for a device of a claim
	id        string // as the device plugin calls it
	device    string // what id stands for: a PCI address or the name of a vDPA device
	claim     string // namespace/name of the resource claim, "" without one
	byName    bool   // the very vDPA device was meant, not just the PCI function below it
}

// holders are the containers to which the kubelet gave a device, this container
// first.
func (s *search) holders(a *Attachment, d device) ([]holder, error) {
	w := s.word()
	var all []holder
	order := append([]allocation.Container{w.own}, w.pod.Containers...)
	for i, c := range order {
		if i > 0 && w.listed && c.Name == w.own.Name || i == 0 && !w.listed {
			continue
		}
		for _, r := range c.Resources {
			for _, id := range r.IDs {
				h, ok, err := s.means(a, r.Name, id, d)
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
			if ok := d.has(cl.Device) || d.pci != "" && claimName(d.pci) == cl.Device; ok {
				h := holder{container: c.Name, id: cl.Device, device: d.pci, claim: cl.Namespace + "/" + cl.Claim, byName: cl.Device == d.name()}
				if h.byName {
					h.device = d.name()
				}
				all = append(all, h)
			}
		}
	}
	if d.vdpa == "" {
		return all, nil
	}
	// Several vDPA devices may share a PCI function: who was given the very device
	// comes before who was given the function.
	var exact []holder
	for _, h := range all {
		if h.byName {
			exact = append(exact, h)
		}
	}
	if len(exact) > 0 {
		return exact, nil
	}
	return all, nil
}

// claimName is how drivers of dynamic resource allocation, which may only name
// devices with DNS labels, write a PCI address (dra-driver-sriov).
func claimName(pci string) string { return strings.NewReplacer(":", "-", ".", "-").Replace(pci) }

// means reports whether a device that a device plugin calls id is d. The plugin's
// own file decides where there is one; without it an ID means what it looks like.
func (s *search) means(a *Attachment, resource, id string, d device) (h holder, ok bool, err error) {
	h = holder{resource: resource, id: id, device: normal(id), byName: id == d.vdpa}
	direct := d.has(id)
	if !direct && isPCIAddress(id) && d.pci != "" {
		return h, false, nil // another function
	}
	p := s.pluginFile(resource, id)
	other, described := deviceOf(p.info)
	switch {
	case !described:
		return h, direct, nil
	case other.same(d):
		if h.byName = other.vdpa == d.vdpa; !direct {
			h.device = other.name()
		}
		return h, true, nil
	case direct:
		return h, false, &ConflictError{On: which(a), First: Claim{a.File, d.String()}, Second: Claim{p.path, other.String()}, Hint: hintRecreate}
	}
	return h, false, nil
}

// claimed gives the variable of the container's environment that names a device,
// and the ID it has there.
func (s *search) claimed(a *Attachment, d device) (v variable, id string, ok bool) {
	for _, v := range s.env {
		for _, id := range v.ids {
			if d.has(id) {
				return v, id, true
			}
			if isPCIAddress(id) && d.pci != "" {
				continue
			}
			resource := s.realName(v)
			if resource == "" {
				continue
			}
			if h, ok, err := s.means(a, resource, id, d); ok && err == nil {
				return v, h.id, true
			}
		}
	}
	return variable{}, "", false
}

// owner says whose the device of an attachment is.
func (s *search) owner(a *Attachment) {
	d, ok := deviceOf(a.Info)
	if !ok || a.Err != nil || s.q.Wanted != nil && !s.q.Wanted(a) {
		return
	}
	w := s.word()
	switch {
	case w.err != nil:
		a.refuse(fmt.Errorf("whose %s is: %w", d, w.err))
		return
	case w.answered:
		s.kubeletSays(a, d)
	default:
		s.environmentSays(a, d)
	}
	if a.Owner == OwnedHere {
		s.complete(a)
	}
}

const hintForged = "take the variable out of the pod's spec: device plugins set it"

// kubeletSays settles the owner where the kubelet answered: its word alone
// counts, and an environment that contradicts it is a conflict.
func (s *search) kubeletSays(a *Attachment, d device) {
	w := s.word()
	hs, err := s.holders(a, d)
	if err != nil {
		a.refuse(err)
		return
	}
	v, id, claimed := s.claimed(a, d)
	mine := Claim{FromEnvironment(v.name), fmt.Sprintf("device %s is this container's", quote(id))}
	switch {
	case len(hs) > 0 && hs[0].container == s.q.Container:
		h := hs[0]
		a.Owner, a.OwnerFrom, a.DeviceID, a.Device = OwnedHere, w.from, h.id, h.device
		if h.resource != "" {
			a.Resource = h.resource
		} else {
			a.Notes = append(a.Notes, "the device is one of resource claim "+quote(h.claim))
		}
		for _, other := range hs[1:] {
			if other.container != s.q.Container {
				a.Notes = append(a.Notes, fmt.Sprintf("the kubelet gave the device to container %q, too", other.container))
				break
			}
		}
	case len(hs) > 0:
		if claimed && w.listed {
			a.refuse(&ConflictError{On: "whose " + d.String() + " is", First: mine,
				Second: Claim{w.from, fmt.Sprintf("it is container %q's", hs[0].container)}, Hint: hintForged})
			return
		}
		a.Owner, a.OwnerFrom, a.DeviceID = OwnedElsewhere, w.from, hs[0].id
		if hs[0].resource != "" {
			a.Resource = hs[0].resource
		}
		a.Notes = append(a.Notes, fmt.Sprintf("the kubelet gave the device to container %q", hs[0].container))
	case claimed && w.listed:
		a.refuse(&ConflictError{On: "whose " + d.String() + " is", First: mine,
			Second: Claim{w.from, "it was given to no container of the pod"}, Hint: hintForged})
		return
	default:
		a.Notes = append(a.Notes, "the kubelet gave the device to no container of the pod")
	}
	if !w.listed {
		a.Notes = append(a.Notes, unlisted)
	}
}

const unlisted = "the kubelet does not list this container, as it lists no init container and no ephemeral container: none of the pod's devices is delivered to it"

// environmentSays settles the owner where there is no kubelet that could be
// asked, and none is required.
func (s *search) environmentSays(a *Attachment, d device) {
	v, id, ok := s.claimed(a, d)
	if !ok {
		a.Notes = append(a.Notes, "there is no kubelet's socket to ask, and no variable "+envPrefix+"* of the container names the device")
		return
	}
	a.DeviceID, a.Device = id, normal(id)
	if !d.has(id) {
		a.Device = d.name() // the device plugin's file says so
	}
	s.believe(a, v)
}

// believe takes a variable's word for it that a device is this container's.
func (s *search) believe(a *Attachment, v variable) {
	a.Owner, a.OwnerFrom = OwnedHere, FromEnvironment(v.name)
	if a.Resource == "" || envKey(a.Resource) != v.key {
		a.Resource = s.realName(v)
	}
	a.Notes = append(a.Notes, "there is no kubelet's socket to ask: "+v.name+" of the container is believed, which a pod's author can write as well")
}

// complete adds to the description of this container's own device what only the
// device plugin's environment tells: sriov-network-device-plugin writes no
// vhost-net into device-info, and no RDMA device where it writes no device-info.
func (s *search) complete(a *Attachment) {
	for _, v := range s.env {
		e, ok := v.info[normal(a.DeviceID)]
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
				a.Notes = append(a.Notes, fmt.Sprintf("pci.%s is from %s: %s", key, envPrefix+v.key+infoSuffix, quote(value)))
			}
		}
		set(&a.Info.PCI.VhostNet, "vhost-net", e.vhostNet)
		set(&a.Info.PCI.RDMADevice, "rdma-device", e.rdma)
		return
	}
}
