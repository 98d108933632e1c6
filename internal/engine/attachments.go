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
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
)

// addNetworks adds the pod's attachments. Those that the annotation lists are explicit
// requests. With "auto", every attachment whose network the policy manages is delivered; the
// others are unmanaged.
func addNetworks(in *inputs, add func(candidate)) error {
	requested := in.annotated.Networks
	if requested.Mode == annotation.NetworksAuto {
		for i := range in.attached {
			if hasDevice(in.attached[i]) {
				add(newAttachment(in, &in.attached[i], "", false))
			}
		}
	}
	if in.req.FromManifest && in.req.SandboxID == "" {
		return nil // the caller explains the networks of the annotation
	}
	listed := make([]bool, len(in.attached))
	for _, n := range requested.Items {
		matched := false
		for i := range in.attached {
			a := &in.attached[i]
			if !n.Selects(in.req.Namespace, a.Network, a.IfName) {
				continue
			}
			matched = true
			if !listed[i] {
				listed[i] = true
				add(newAttachment(in, a, n.Key, n.Optional))
			}
		}
		if !matched {
			add(missingNetwork(in, n))
		}
	}
	return nil
}

// missingNetwork returns the candidate of a requested network that the pod does not have.
func missingNetwork(in *inputs, n annotation.Network) candidate {
	request := fmt.Sprintf("network %q", n.Item)
	item := Item{Kind: KindNetwork, Name: n.Item, Request: request, From: n.Key, Optional: n.Optional}
	return candidate{item: item, resolve: func(*delta) error {
		return &RequestError{Annotation: n.Key, Position: n.Position, Request: request,
			Err: fmt.Errorf("no device-info of this pod in %s is of that network or interface (found: %s); "+
				"check that the network's CNI plugin writes device-info: %w",
				in.cfg.DeviceInfo.CNIDir, listAttachments(in.attached), errdefs.ErrNotFound)}
	}}
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

// addAllocatedDevices adds the devices that a device plugin or DRA driver allocated to the container
// and that belong to no network. They are discovered: a rule can grant them. A device that the container has
// already, from the plugin or by an annotation, is left out.
func addAllocatedDevices(in *inputs, add func(candidate)) error {
	for i := range in.allocated {
		c := newAttachment(in, &in.allocated[i], "", false)
		c.device = &in.allocated[i]
		add(c)
	}
	return nil
}

// addResource adds the devices of an extended resource that the kubelet
// allocated to the container, as the device plugin's files describe them.
func addResource(in *inputs, d *annotation.Device, add func(candidate)) {
	item := Item{Kind: KindResource, Name: d.Name, Device: d.ID, Request: fmt.Sprintf("resource %q", d.Item),
		From: d.Key, Optional: d.Optional}
	found, err := in.search.Resource(d.Name, d.ID)
	unlisted, ok := errors.AsType[*attachment.UnlistedError](err)
	if ok && !in.isKeyOfContainer(d.Key) && len(unlisted.Holders) > 0 && !unlisted.Claimed {
		// The pod's annotation means the containers that have the resource. Init and ephemeral
		// containers have no annotation of their own that could exclude them.
		add(declined(item, Unmanaged, fmt.Errorf("the kubelet lists no init container and no ephemeral container; "+
			"it gave the resource to container %q", unlisted.Holders[0])))
		return
	}
	if _, unanswered := errors.AsType[*attachment.UnansweredError](err); unanswered && in.req.FromManifest {
		if hint := diag.MalformedPCIAddress(d.ID); hint != "" {
			item.Notes = append(item.Notes, hint)
		}
		add(declined(item, NotChecked, errors.New("needs the node of the pod: the kubelet there knows "+
			"what it allocated to the container, and none can be asked here")))
		return
	}
	if err != nil {
		add(candidate{item: item, resolve: func(*delta) error { return inAnnotation(d.Key, d.Position, err) }})
	}
	for i := range found {
		add(newAttachment(in, &found[i], d.Key, d.Optional))
	}
}

// newAttachment returns the candidate of one attachment. The key is the annotation that requests it, or "" if it
// was discovered: then it is unmanaged unless a rule grants it. If a rule grants the pod any socket
// or device of the network, a fault in its device-info is an error.
func newAttachment(in *inputs, a *attachment.Attachment, key string, optional bool) candidate {
	item := newAttachmentItem(a)
	item.From, item.Optional = key, optional
	var unchecked error
	if key == "" {
		item.From = cmp.Or(a.File, a.OwnerFrom)
		if reason := unmanagedReason(in, a); reason != "" {
			received, err := hasReceived(in, a)
			if err != nil {
				unchecked = &RequestError{Request: item.Request, Err: err}
			}
			if !received {
				c := declined(item, Unmanaged, &UnmanagedError{reason, missingRule(in, a)})
				c.unchecked = unchecked
				return c
			}
		}
		if a.Info == nil && a.Err == nil && (a.Claimed == nil || a.Network != "" || a.Owner != attachment.OwnedHere) {
			item.Notes = nil // the reason has them
			return declined(item, Unmanaged, errors.New(strings.Join(a.Notes, "; ")))
		}
	}
	return candidate{item: item, unchecked: unchecked, resolve: func(d *delta) error {
		return resolveAttachment(in, d, a, key)
	}}
}

// hasReceived reports whether a running container has the socket or device of an attachment, and keeps it without a
// rule. An error means that this cannot be determined.
func hasReceived(in *inputs, a *attachment.Attachment) (bool, error) {
	if !in.running {
		return false, nil
	}
	if a.Info == nil {
		return false, a.Err
	}
	if s := newAttachmentSocket(in, a); s != nil {
		if !s.onHost {
			return false, nil
		}
		at, err := in.roots.locate(s.name, s.path)
		return err == nil && in.hasSocket(at), err
	}
	found, err := findNodes(in.host, a)
	missing, _ := selectNodes(in.decideNodes(a, found.nodes))
	return err == nil && len(found.nodes) > 0 && len(missing) == 0, err
}

// resolveAttachment adds the socket or the device nodes of an attachment.
func resolveAttachment(in *inputs, d *delta, a *attachment.Attachment, key string) error {
	err := addAttachment(in, d, a, key)
	switch {
	case err == nil:
		return nil
	case isRefusal(err) && key == "" && d.item.Rule == "":
		// No rule grants any part of it.
		if in.req.FromManifest && a.Claimed != nil {
			d.addNotes("a device that the claim's driver has the runtime inject (CDI) needs no rule; " +
				"a manifest does not show it, `jackfield status` does")
		}
		d.item.SetOutcome(Unmanaged, err)
		return nil
	case isRefusal(err):
		return err
	}
	return &RequestError{Request: d.item.Request, Err: err}
}

func addAttachment(in *inputs, d *delta, a *attachment.Attachment, key string) error {
	if a.Err != nil {
		return a.Err
	}
	if a.Info == nil && a.Network == "" && a.Claimed != nil {
		// The driver can describe the device later: the container then has a file to read.
		d.item.Outcome = Injected
		d.view = newAttachmentEntry(a, placement{})
		return nil
	}
	if a.Info == nil {
		d.item.Notes = nil // the error has them
		return &RequestError{Annotation: key, Err: fmt.Errorf("%s (searched in %s): %w",
			strings.Join(a.Notes, "; "), in.cfg.DeviceInfo.CNIDir, errdefs.ErrNotFound)}
	}
	if s := newAttachmentSocket(in, a); s != nil {
		return addSocket(in, d, s)
	}
	return resolveDevice(in, d, a)
}

// newAttachmentItem returns the item of a network or of a device without a network.
func newAttachmentItem(a *attachment.Attachment) Item {
	item := Item{Kind: KindNetwork, Name: a.Network, Interface: a.IfName, File: a.File, Notes: slices.Clone(a.Notes)}
	// The request names the most specific of claim, interface, network and resource.
	switch {
	case a.Network == "" && a.Claimed != nil && a.Resource != "": // an extended resource of a DRA driver
		item.Kind, item.Name, item.Device = KindResource, a.Resource, a.Claimed.Device
		item.Request = fmt.Sprintf("resource %q device %q", a.Resource, item.Device)
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
		item.Kind, item.Name, item.Device = KindResource, a.Resource, a.DeviceID
		item.Request = fmt.Sprintf("resource %q device %q", a.Resource, a.DeviceID)
	}
	return item
}

// unmanagedReason returns why a discovered attachment is unmanaged, or "".
func unmanagedReason(in *inputs, a *attachment.Attachment) string {
	switch {
	case in.managesNetwork(a):
		return ""
	case a.Network == "":
		return fmt.Sprintf("no rule grants allocated devices to namespace %q", in.req.Namespace)
	}
	reason := fmt.Sprintf("no rule grants sockets or devices of network %q to namespace %q", a.Network, in.req.Namespace)
	if known := (&attachment.Attachment{Network: a.Network}); a.NetworkGuessed && in.managesNetwork(known) {
		reason += ": for a rule that names networks, Multus' record of the sandbox must have the network's namespace; " +
			a.NetworkGap
	}
	return reason
}

// missingRule returns, in audit mode, the refusal with the lines of a rule that would deliver an unmanaged
// attachment, or nil.
func missingRule(in *inputs, a *attachment.Attachment) *policy.RefusedError {
	if in.policy.Mode() != policy.Audit || a.Info == nil {
		return nil
	}
	subject := in.subjectFor(a)
	grant, err := in.policy.Network(subject, a.PolicyNetwork())
	if s := newAttachmentSocket(in, a); s != nil && s.onHost {
		at, unknown := in.roots.locate(s.name, s.path)
		if unknown != nil {
			return nil // delivering it would fail for another reason than policy
		}
		grant, err = in.policy.Socket(subject, at.names()[0])
	}
	if err != nil || grant.Refusal == nil || len(grant.Refusal.Lines) == 0 {
		return nil
	}
	return grant.Refusal
}
