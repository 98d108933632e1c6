// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/sysfs"
	"github.com/jackfield/jackfield/pkg/wording"
)

// networks delivers the pod's attachments. Those that the annotation lists are
// asked for; under "auto" each that policy puts Jackfield in charge of is
// delivered, and the others are left alone.
func (p *planner) networks(want annotation.Networks, found []attachment.Attachment) {
	if want.Mode == annotation.NetworksNone {
		return
	}
	if want.Mode == annotation.NetworksAuto {
		for i := range found {
			if worthSaying(found[i]) {
				p.attachment(&found[i], "", false)
			}
		}
		return
	}
	taken := make([]bool, len(found))
	for _, n := range want.Items {
		matched := false
		for i := range found {
			if !n.Selects(p.req.Namespace, found[i].Network, found[i].IfName) {
				continue
			}
			matched = true
			if !taken[i] {
				taken[i] = true
				p.attachment(&found[i], n.Key, n.Optional)
			}
		}
		if !matched {
			p.attempt(Item{Kind: KindNetwork, Request: fmt.Sprintf("network %q", n.Item), From: n.Key}, n.Optional, func(*Item) error {
				return fmt.Errorf("annotation %s, item %d: network %q: no device-info of this pod in %s is of that network or interface (found: %s); "+
					"check that the network's CNI plugin writes device-info: %w",
					n.Key, n.Position, n.Item, p.cfg.DeviceInfo.CNIDir, listAttachments(found), errdefs.ErrNotFound)
			})
		}
	}
}

// worthSaying reports whether an attachment is more than a network without
// device-info, such as most networks are.
func worthSaying(a attachment.Attachment) bool {
	return a.Info != nil || a.Err != nil || a.DeviceID != ""
}

// allocated delivers the devices that a device plugin allocated to the container
// and that no network claims. Nobody asks for them; a rule may grant them. What
// the container has already, from the plugin or by an annotation, stays as it is.
func (p *planner) allocated(found []attachment.Attachment) {
	for i := range found {
		if !p.shown(&found[i]) {
			p.attachment(&found[i], "", false)
		}
	}
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

// attachment delivers one attachment. key is the annotation that asks for it,
// or "" where it was found without being asked for: then it is left alone
// unless some rule grants it. A rule that lets its network bring this pod sockets
// or devices at all makes what is wrong with its device-info an error.
func (p *planner) attachment(a *attachment.Attachment, key string, optional bool) {
	item := Item{Kind: kindOf(a), Request: requestOf(a), From: key, File: a.File}
	if key == "" {
		item.From = cmp.Or(a.File, a.OwnerFrom)
		if reason := p.notInCharge(a); reason != "" {
			kept, err := p.keeps(a)
			if p.running && err != nil {
				p.unchecked = append(p.unchecked, fmt.Errorf("%s: %w", item.Request, err))
			}
			if !kept {
				if remedy := p.missingRule(a); remedy != "" {
					reason += ", and audit mode delivers nothing that was not asked for; to deliver it, " + remedy
				}
				item.Outcome, item.Reason = LeftAlone, reason
				p.items = append(p.items, item)
				return
			}
		}
		if a.Info == nil && a.Err == nil {
			item.Outcome, item.Reason = LeftAlone, strings.Join(a.Notes, "; ")
			p.items = append(p.items, item)
			return
		}
	}
	p.attempt(item, optional, func(item *Item) error {
		if a.Err != nil {
			return fmt.Errorf("%s: %w", item.Request, a.Err)
		}
		if a.Info == nil {
			return fmt.Errorf("annotation %s: %s: %s (looked in %s): %w", key, item.Request, strings.Join(a.Notes, "; "), p.cfg.DeviceInfo.CNIDir, errdefs.ErrNotFound)
		}
		item.Notes = append(item.Notes, a.Notes...)
		origin := edits.Origin{Source: edits.Attachment, Request: item.Request, File: a.File}
		var err error
		if s, ok := p.socketOf(a); ok {
			err = p.deliverSocket(s, origin, item)
		} else {
			err = p.deliverDevice(a, origin, item)
		}
		switch {
		case err == nil:
			return nil
		case isRefusal(err) && key == "" && item.Rule == "":
			// No rule grants any of it, so nobody put Jackfield in charge of it, and
			// nothing of it is in the set.
			item.Outcome, item.Reason = LeftAlone, err.Error()
			return nil
		case isRefusal(err):
			return err
		}
		return fmt.Errorf("%s: %w", item.Request, err)
	})
}

func kindOf(a *attachment.Attachment) RequestKind {
	if a.IfName != "" || a.Network != "" {
		return KindNetwork
	}
	return KindResource
}

func requestOf(a *attachment.Attachment) string {
	switch {
	case a.IfName != "":
	case a.Network != "":
		return fmt.Sprintf("network %q", a.Network)
	case a.Resource == "":
		return fmt.Sprintf("device %q", a.DeviceID)
	default:
		return fmt.Sprintf("resource %q device %q", a.Resource, a.DeviceID)
	}
	return fmt.Sprintf("network %q on %s", a.Network, a.IfName)
}

// notInCharge says why an attachment that nobody asked for is left alone, or "".
func (p *planner) notInCharge(a *attachment.Attachment) string {
	switch {
	case p.inCharge(p.subject, a):
		return ""
	case a.Network == "":
		return fmt.Sprintf("no rule lets allocated devices come to namespace %q", p.req.Namespace)
	}
	reason := fmt.Sprintf("no rule lets network %q bring anything to namespace %q", a.Network, p.req.Namespace)
	if known := (&attachment.Attachment{Network: a.Network}); a.NetworkGuessed && p.inCharge(p.subject, known) {
		reason += ", for only Multus' record of the sandbox says in which namespace the network is, and has none"
	}
	return reason
}

// missingRule returns, in audit mode, the lines that would have an unmanaged attachment
// delivered: audit mode reports every rule that mode enforce needs.
func (p *planner) missingRule(a *attachment.Attachment) string {
	if p.policy.Mode() != policy.Audit || a.Info == nil {
		return ""
	}
	subject := p.subject
	subject.Network, subject.NetworkGuessed = a.PolicyNetwork(), a.NetworkGuessed
	grant, err := p.policy.Network(subject, a.PolicyNetwork())
	if s, ok := p.socketOf(a); ok && !s.inContainer() {
		at, unknown := p.place(s.path)
		if unknown != nil {
			return "" // delivering it would fail for another reason than policy
		}
		grant, err = p.policy.Socket(subject, at.names()[0])
	}
	if err != nil || grant.Refusal == nil {
		return ""
	}
	return grant.Refusal.Remedy()
}

// inCharge reports whether some rule lets the attachment's network bring the container
// anything.
func (e *Engine) inCharge(s policy.Subject, a *attachment.Attachment) bool {
	s.NetworkGuessed = a.NetworkGuessed
	grant, err := e.policy.Network(s, a.PolicyNetwork())
	return err == nil && grant.Rule != ""
}

func (p *planner) deliverSocket(s socket, origin edits.Origin, item *Item) error {
	staged := p.stagedSockets()
	v, err := p.addSocket(s, origin, item)
	if err != nil {
		return err
	}
	if p.stagedSockets() > staged {
		item.Outcome = Injected // also where the container has the directory of another socket already
	}
	if v.note != "" {
		item.Notes = append(item.Notes, v.note)
	}
	if item.Rule == "" {
		// Nothing of the host is handed over: an abstract socket, or one whose
		// directory the container has already.
		item.Outcome = Injected
	}
	p.view = append(p.view, v)
	return nil
}

// stagedSockets counts the sockets and socket directories of the plan that the host prepares.
func (p *planner) stagedSockets() int {
	if p.stage == nil {
		return 0
	}
	return len(p.stage.Sockets) + len(p.stage.SocketDirs)
}

// grantSocket asks policy for the socket under each spelling of its path.
func (p *planner) grantSocket(a *attachment.Attachment, at place, item *Item) error {
	granted, denied, err := p.grantPath(a, at, p.policy.Socket, p.policy.SocketDenied)
	if err != nil {
		return err
	}
	noteAudit(item, denied)
	noteAudit(item, granted)
	item.Rule = granted.Rule
	return nil
}

// grantPath asks policy for a path under each of its spellings. An error names the one
// that device-info has. What a rule denies under one spelling is denied, whatever another
// would be; what a rule in force grants under one is not what mode enforce would refuse.
// It gives the best of the grants, and one that is denied on trial.
func (p *planner) grantPath(a *attachment.Attachment, at place, ask func(policy.Subject, string) (policy.Grant, error),
	isDenied func(policy.Subject, string) (*policy.RefusedError, bool)) (granted, denied policy.Grant, err error) {
	subject := p.subject
	subject.Network, subject.NetworkGuessed = a.PolicyNetwork(), a.NetworkGuessed
	var first error
	names, best := at.names(), 0
	for _, name := range names {
		grant, err := ask(subject, name)
		var refused *policy.RefusedError
		switch {
		case errors.As(err, &refused) && refused.Denied:
			return granted, denied, err
		case err != nil:
			if first == nil {
				first = err
			}
			continue
		}
		if grant.Audited && grant.Refusal.Denied {
			denied = grant
		}
		if w := weight(grant); w > best {
			granted, best = grant, w
		}
	}
	for _, name := range p.otherSpellings(at) {
		refused, enforced := isDenied(subject, name)
		switch {
		case enforced:
			return granted, denied, refused
		case refused != nil:
			denied = policy.Grant{Audited: true, Refusal: refused}
		}
	}
	if best == 0 {
		return granted, denied, first
	}
	return granted, denied, nil
}

// weight orders grants of one thing under several names: by audit mode alone, by a
// rule that audit mode has a part in, and by a rule in force.
func weight(g policy.Grant) int {
	switch {
	case g.Rule == "":
		return 1
	case g.Audited:
		return 2
	}
	return 3
}

// otherSpellings returns further names of a path by which a rule may deny it: below
// other socket roots whose symlinks lead to the same place, and with /run for /var/run
// where the host has the one as a symlink to the other. A root that lies within the path
// is among them, because handing over a directory hands over everything below it.
func (p *planner) otherSpellings(at place) []string {
	var others []string
	full := path.Join(at.canonical, at.rel)
	for _, r := range p.roots {
		if r.name == at.root || p.answering(r.name) != nil {
			continue
		}
		canonical, err := r.resolve(p.host)
		if err != nil {
			continue // it does not exist, so nothing lies below it
		}
		if rel, ok := below(canonical, full); ok {
			others = append(others, path.Join(r.name, rel))
		} else if _, ok := below(full, canonical); ok || canonical == full {
			others = append(others, r.name)
		}
	}
	if !p.varRunIsRun() {
		return others
	}
	for _, name := range slices.Concat(at.names(), others) {
		if rest, ok := strings.CutPrefix(name, "/var/run/"); ok {
			others = append(others, "/run/"+rest)
		} else if strings.HasPrefix(name, "/run/") {
			others = append(others, "/var"+name)
		}
	}
	return others
}

// grantDevice asks policy for one device node of the host.
func (p *planner) grantDevice(a *attachment.Attachment, hostPath string, item *Item) (policy.Grant, error) {
	subject := p.subject
	subject.Network, subject.NetworkGuessed = a.PolicyNetwork(), a.NetworkGuessed
	grant, err := p.policy.Device(subject, hostPath)
	if err != nil {
		return grant, err
	}
	noteAudit(item, grant)
	if item.Rule == "" {
		item.Rule = grant.Rule
	}
	return grant, nil
}

// deliverDevice adds the nodes of a PCI or vDPA device, when it was allocated to
// this very container.
func (p *planner) deliverDevice(a *attachment.Attachment, origin edits.Origin, item *Item) error {
	if reason := notAllocated(a); reason != "" {
		// An annotation of the whole pod speaks of containers that have no part in
		// the device; one of this container's own does not.
		if p.own(item.From) {
			return fmt.Errorf("annotation %s: %s; request it under the container's resources.limits: %w", item.From, reason, errdefs.ErrFailedPrecondition)
		}
		item.Outcome, item.Reason = LeftAlone, reason
		return nil
	}
	v := viewEntry{att: a}
	nodes, err := p.nodes(a, &v)
	if err != nil {
		return fmt.Errorf("%s: %w", a.File, err)
	}
	for _, n := range nodes {
		if p.has(n) {
			continue // nothing is handed over
		}
		if p.running {
			item.Outcome, item.Reason = LeftAlone, "a running container gets no device nodes: the device is there once the container is created anew"
			return nil
		}
		grant, err := p.grantDevice(a, n.HostPath, item)
		if err != nil {
			return err
		}
		origin.Rule, origin.Field = grant.Rule, n.From
		mode := n.FileMode
		d := edits.Device{Path: n.Path, HostPath: n.HostPath, Type: n.Type, Major: int64(n.Major), Minor: int64(n.Minor),
			FileMode: &mode, Access: "rw", Origin: origin}
		if u := p.req.User; u != nil {
			d.UID, d.GID = &u.UID, &u.GID
		}
		if err := p.b.AddDevice(&d); err != nil {
			return err
		}
	}
	for _, path := range a.Announced {
		if !slices.ContainsFunc(nodes, func(n sysfs.Node) bool { return n.Path == path }) {
			v.notes = append(v.notes, fmt.Sprintf("the device plugin announced %s for the device, and sysfs gives the device no such node", path))
		}
	}
	item.Notes = append(item.Notes, v.notes...)
	if len(nodes) == 0 || slices.ContainsFunc(nodes, func(n sysfs.Node) bool { return !p.has(n) }) {
		item.Outcome = Injected
	}
	p.show(v)
	return nil
}

// has reports whether the container has the node already, from the device plugin
// or the runtime.
func (p *planner) has(n sysfs.Node) bool {
	return slices.ContainsFunc(p.req.Have.Devices, func(d edits.Device) bool {
		return edits.SamePlace(d.Path, n.Path) && d.Type == n.Type && d.Major == int64(n.Major) && d.Minor == int64(n.Minor)
	})
}

// own reports whether an annotation's key is for this container alone.
func (p *planner) own(key string) bool { return strings.HasSuffix(key, "/container."+p.req.Container) }

// notAllocated says why a device is not this container's, or "".
func notAllocated(a *attachment.Attachment) string {
	switch {
	case a.Owner == attachment.OwnedHere:
		return ""
	case a.Owner == attachment.OwnedElsewhere:
		return "the kubelet allocated the device to another container of the pod"
	default:
		return "nothing on the node says that the device was allocated to this container"
	}
}

// resource delivers the devices of an extended resource that the kubelet
// allocated to the container, as the device plugin's files describe them.
func (p *planner) resource(d annotation.Device) {
	found, err := p.attachments.Resource(p.ctx, query(&p.req), d.Resource, d.ID)
	var unlisted *attachment.UnlistedError
	if errors.As(err, &unlisted) && !p.own(d.Key) && len(unlisted.Holders) > 0 && !unlisted.Claimed {
		// The pod's annotation means the containers that have it. Neither an init nor an
		// ephemeral container can be kept out of it, once the pod runs.
		p.items = append(p.items, Item{Request: fmt.Sprintf("resource %q", d.Item), From: d.Key, Outcome: LeftAlone,
			Reason: fmt.Sprintf("the kubelet lists no init container and no ephemeral container; it gave the resource to container %q", unlisted.Holders[0])})
		return
	}
	var unanswered *attachment.UnansweredError
	if p.explains && p.req.FromManifest && errors.As(err, &unanswered) {
		item := Item{Kind: KindResource, Request: fmt.Sprintf("resource %q", d.Item), From: d.Key, Outcome: NotChecked,
			Reason: "needs the node of the pod: the kubelet there knows what it allocated to the container, and none can be asked here"}
		if hint := wording.MalformedPCIAddress(d.ID); hint != "" {
			item.Notes = append(item.Notes, hint)
		}
		p.items = append(p.items, item)
		return
	}
	if err != nil {
		p.attempt(Item{Kind: KindResource, Request: fmt.Sprintf("resource %q", d.Item), From: d.Key}, d.Optional, func(*Item) error {
			return fmt.Errorf("annotation %s, item %d: %w", d.Key, d.Position, err)
		})
		return
	}
	for i := range found {
		p.attachment(&found[i], d.Key, d.Optional)
	}
}

func query(req *Request) attachment.Query {
	return attachment.Query{
		SandboxID: req.SandboxID, Namespace: req.Namespace, Pod: req.Pod, PodUID: req.PodUID, Container: req.Container,
		Networks: req.Annotations[attachment.NetworksAnnotation], Env: req.Have.Env,
	}
}
