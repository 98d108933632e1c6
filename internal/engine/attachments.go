// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// deliverNetworks delivers the pod's attachments. Those that the annotation lists are explicit
// requests. Under "auto" every attachment whose network the policy manages is delivered; the
// others are unmanaged.
func (p *planner) deliverNetworks(want annotation.Networks, found []attachment.Attachment) {
	if p.req.FromManifest && p.req.SandboxID == "" {
		want.Items = nil // the caller explains them
	}
	if want.Mode == annotation.NetworksAuto {
		for i := range found {
			if hasDevice(found[i]) {
				p.deliverAttachment(&found[i], "", false)
			}
		}
	}
	delivered := make([]bool, len(found))
	for _, n := range want.Items {
		matched := false
		for i := range found {
			if !n.Selects(p.req.Namespace, found[i].Network, found[i].IfName) {
				continue
			}
			matched = true
			if !delivered[i] {
				delivered[i] = true
				p.deliverAttachment(&found[i], n.Key, n.Optional)
			}
		}
		if !matched {
			item := Item{Kind: KindNetwork, Name: n.Item, Request: fmt.Sprintf("network %q", n.Item), From: n.Key, Optional: n.Optional}
			p.deliver(item, func(*Item) error {
				return &RequestError{Annotation: n.Key, Position: n.Position, Request: item.Request,
					Err: fmt.Errorf("no device-info of this pod in %s is of that network or interface (found: %s); "+
						"check that the network's CNI plugin writes device-info: %w", p.cfg.DeviceInfo.CNIDir, listAttachments(found), errdefs.ErrNotFound)}
			})
		}
	}
}

// hasDevice reports whether an attachment has a device or socket. Most networks have none.
func hasDevice(a attachment.Attachment) bool {
	return a.Info != nil || a.Err != nil || a.DeviceID != ""
}

func listAttachments(found []attachment.Attachment) string {
	if len(found) == 0 {
		return "none"
	}
	names := make([]string, len(found))
	for i, a := range found {
		names[i] = a.Network + " on " + a.IfName
	}
	return strings.Join(names, ", ")
}

// deliverAllocated delivers the devices that a device plugin or DRA driver allocated to the container
// and that belong to no network. They are discovered: a rule may grant them. A device that the container has
// already, from the plugin or by an annotation, stays as it is.
func (p *planner) deliverAllocated(found []attachment.Attachment) {
	for i := range found {
		if !p.inView(&found[i]) {
			p.deliverAttachment(&found[i], "", false)
		}
	}
}

// deliverResource delivers the devices of an extended resource that the kubelet
// allocated to the container, as the device plugin's files describe them.
func (p *planner) deliverResource(d annotation.Device) {
	item := Item{Kind: KindResource, Name: d.Name, Device: d.ID, Request: fmt.Sprintf("resource %q", d.Item), From: d.Key, Optional: d.Optional}
	found, err := p.search.Resource(d.Name, d.ID)
	unlisted, ok := errors.AsType[*attachment.UnlistedError](err)
	if ok && !p.isForThisContainer(d.Key) && len(unlisted.Holders) > 0 && !unlisted.Claimed {
		// The pod's annotation means the containers that have the resource. Init and ephemeral
		// containers have no annotation of their own that could exclude them.
		p.addItem(item, Unmanaged, fmt.Errorf("the kubelet lists no init container and no ephemeral container; it gave the resource to container %q", unlisted.Holders[0]))
		return
	}
	if _, unanswered := errors.AsType[*attachment.UnansweredError](err); unanswered && p.req.FromManifest {
		if hint := diag.MalformedPCIAddress(d.ID); hint != "" {
			item.Notes = append(item.Notes, hint)
		}
		p.addItem(item, NotChecked, errors.New("needs the node of the pod: the kubelet there knows what it allocated to the container, and none can be asked here"))
		return
	}
	if err != nil {
		p.deliver(item, func(*Item) error { return inAnnotation(d.Key, d.Position, err) })
	}
	for i := range found {
		p.deliverAttachment(&found[i], d.Key, d.Optional)
	}
}

// isForThisContainer reports whether an annotation's key names this container.
func (p *planner) isForThisContainer(key string) bool {
	return strings.HasSuffix(key, "/container."+p.req.Container)
}

// deliverAttachment delivers one attachment. key is the annotation that requests it, or "" if it was
// discovered: then it is unmanaged unless a rule grants it. If a rule grants the pod any socket
// or device of the network, a fault in its device-info is an error.
func (p *planner) deliverAttachment(a *attachment.Attachment, key string, optional bool) {
	item := newAttachmentItem(a)
	item.From, item.Optional = key, optional
	if key == "" {
		item.From = cmp.Or(a.File, a.OwnerFrom)
		if reason := p.unmanagedReason(a); reason != "" {
			kept, err := p.keeps(a)
			if err != nil {
				p.unchecked = append(p.unchecked, &RequestError{Request: item.Request, Err: err})
			}
			if !kept {
				p.addItem(item, Unmanaged, &UnmanagedError{reason, p.missingRule(a)})
				return
			}
		}
		if a.Info == nil && a.Err == nil && (a.Claimed == nil || a.Network != "" || a.Owner != attachment.OwnedHere) {
			item.Notes = nil // the reason has them
			p.addItem(item, Unmanaged, errors.New(strings.Join(a.Notes, "; ")))
			return
		}
	}
	p.deliver(item, func(item *Item) error {
		err := p.addAttachment(a, key, item)
		switch {
		case err == nil:
			return nil
		case isRefusal(err) && key == "" && item.Rule == "":
			// No rule grants any part of it, so it is unmanaged, and the set has nothing of it.
			if p.req.FromManifest && a.Claimed != nil {
				item.Notes = append(item.Notes, "a device that the claim's driver has the runtime inject (CDI) needs no rule; a manifest does not show it, `jackfield status` does")
			}
			item.Decline(Unmanaged, err)
			return nil
		case isRefusal(err):
			return err
		}
		return &RequestError{Request: item.Request, Err: err}
	})
}

// addAttachment adds the socket or the device nodes of an attachment.
func (p *planner) addAttachment(a *attachment.Attachment, key string, item *Item) error {
	if a.Err != nil {
		return a.Err
	}
	if a.Info == nil && a.Network == "" && a.Claimed != nil {
		// The driver may say more later: the container then has a file to read it in.
		item.Outcome = Injected
		p.addToView(viewEntry{att: a})
		return nil
	}
	if a.Info == nil {
		item.Notes = nil // the error has them
		return &RequestError{Annotation: key, Err: fmt.Errorf("%s (searched in %s): %w", strings.Join(a.Notes, "; "), p.cfg.DeviceInfo.CNIDir, errdefs.ErrNotFound)}
	}
	origin := edit.Origin{Source: edit.Attachment, Request: item.Request, File: a.File}
	if s, ok := p.socketOf(a); ok {
		return p.deliverSocket(s, origin, item)
	}
	return p.deliverDevice(a, origin, item)
}

// newAttachmentItem returns the item of a network or of a device without a network.
func newAttachmentItem(a *attachment.Attachment) Item {
	item := Item{Kind: KindNetwork, Name: a.Network, Interface: a.IfName, File: a.File, Notes: slices.Clone(a.Notes)}
	switch {
	case a.Network == "" && a.Claimed != nil:
		item.Kind, item.Name, item.Device = KindClaim, a.Claimed.Name(), a.Claimed.Device
		item.Request = fmt.Sprintf("claim %q device %q", item.Name, item.Device)
		if item.Device == "" {
			item.Request = fmt.Sprintf("claim %q", item.Name)
		}
	case a.IfName != "":
		item.Request = fmt.Sprintf("network %q on %s", a.Network, a.IfName)
	case a.Network != "":
		item.Request = fmt.Sprintf("network %q", a.Network)
	case a.Resource == "":
		item.Kind, item.Device, item.Request = KindResource, a.DeviceID, fmt.Sprintf("device %q", a.DeviceID)
	default:
		item.Kind, item.Name, item.Device, item.Request = KindResource, a.Resource, a.DeviceID, fmt.Sprintf("resource %q device %q", a.Resource, a.DeviceID)
	}
	return item
}

// unmanagedReason returns why a discovered attachment is unmanaged, or "".
func (p *planner) unmanagedReason(a *attachment.Attachment) string {
	switch {
	case p.managesNetwork(p.subject, a):
		return ""
	case a.Network == "":
		return fmt.Sprintf("no rule grants allocated devices to namespace %q", p.req.Namespace)
	}
	reason := fmt.Sprintf("no rule grants sockets or devices of network %q to namespace %q", a.Network, p.req.Namespace)
	if known := (&attachment.Attachment{Network: a.Network}); a.NetworkGuessed && p.managesNetwork(p.subject, known) {
		reason += ": for a rule that names networks, Multus' record of the sandbox must have the network's namespace; " + a.NetworkGap
	}
	return reason
}

// missingRule returns, in audit mode, the refusal with the lines that would have an unmanaged
// attachment delivered, or nil.
func (p *planner) missingRule(a *attachment.Attachment) *policy.RefusedError {
	if p.policy.Mode() != policy.Audit || a.Info == nil {
		return nil
	}
	subject := p.subjectFor(a)
	grant, err := p.policy.Network(subject, a.PolicyNetwork())
	if s, ok := p.socketOf(a); ok && !s.inContainer() {
		at, unknown := p.socketPath(s.path)
		if unknown != nil {
			return nil // delivering it would fail for another reason than policy
		}
		grant, err = p.policy.Socket(subject, at.names()[0])
	}
	if err != nil || grant.Refusal == nil || len(grant.Refusal.Lines) == 0 {
		return nil
	}
	return grant.Refusal
}

// managesNetwork reports whether some rule lets the attachment's network bring the container
// anything.
func (e *Engine) managesNetwork(s policy.Subject, a *attachment.Attachment) bool {
	s.NetworkGuessed, s.Explanations = a.NetworkGuessed, new(int)
	grant, err := e.policy.Network(s, a.PolicyNetwork())
	return err == nil && grant.Rule != ""
}

// subjectFor returns the subject of policy for what an attachment brings.
func (p *planner) subjectFor(a *attachment.Attachment) policy.Subject {
	s := p.subject
	s.Network, s.NetworkGuessed = a.PolicyNetwork(), a.NetworkGuessed
	return s
}
