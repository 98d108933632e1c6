// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/annotation"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Plan is what a container gets.
type Plan struct {
	Set     edit.Set        // the edits
	Staging *edit.Container // what the edits need on the host; nil for nothing
	Items   []Item          // one for each request, in order
	// Usage is what the container gets, where a rule limits what its pod gets. The adapter keeps
	// it for Ledger.Note after a restart.
	Usage *policy.Usage
	// Unchecked has the errors of sources that could not be read: the container may have
	// something of them. Only Engine.ResolveRunning sets it.
	Unchecked []error
}

// Resolve works out what the container gets. For a container that requests nothing, and for whose
// sandbox there is nothing on the node, it returns nil without an error.
//
// The error is an *Error with every request that failed. It unwraps to the sentinels of
// containerd/errdefs of all of them.
func (e *Engine) Resolve(ctx context.Context, req *Request) (*Plan, error) {
	p := planner{Engine: e, phase: creation}
	if !p.plan(ctx, req) {
		return nil, nil
	}
	return p.result()
}

// Explain is Resolve without a consequence: it reserves nothing in the Ledger, and returns the
// items also if it fails.
func (e *Engine) Explain(ctx context.Context, req *Request) (*Plan, error) {
	p := planner{Engine: e, phase: creation, explains: true}
	if !p.plan(ctx, req) {
		return &Plan{Unchecked: p.unchecked}, nil
	}
	plan, err := p.result()
	if err != nil {
		plan = &Plan{Items: p.items, Unchecked: p.unchecked}
	}
	return plan, err
}

// DropGroups removes the additional groups for which reason returns a text, and adds the text to the notes of the requests.
// It is for an adapter that cannot deliver groups.
func (p *Plan) DropGroups(reason func(set *edit.Set, g *edit.GID) string) {
	var kept []edit.GID
	for i := range p.Set.GIDs {
		g := &p.Set.GIDs[i]
		text := reason(&p.Set, g)
		if text == "" {
			kept = append(kept, *g)
			continue
		}
		at := slices.IndexFunc(p.Items, func(it Item) bool { return it.Request == g.Origin.Request })
		if at >= 0 {
			p.Items[at].Notes = append(p.Items[at].Notes, text)
		}
	}
	p.Set.GIDs = kept
}

// HasNoRequests reports that Resolve would return nothing for the container; false means that this
// is not certain. It is cheap and reads no file.
func (e *Engine) HasNoRequests(req *Request) bool {
	return e.hooks == nil && !e.isAnnotated(req.Annotations) && e.attachments.FindsNothing(query(req))
}

// isAnnotated reports whether any annotation is a request to this engine.
func (e *Engine) isAnnotated(annotations map[string]string) bool {
	return annotation.HasAny(annotations) || e.cfg.Compat.DeviceInjector && annotation.HasInjector(annotations)
}

// MayAsk reports whether a pod's annotations request anything, or name networks that
// a rule could grant. It reads no file: if none can be read, such a pod must not be created
// without its devices.
func (e *Engine) MayAsk(annotations map[string]string) bool {
	return e.isAnnotated(annotations) || annotations[attachment.NetworksAnnotation] != "" || annotations[defaultNetwork] != ""
}

// defaultNetwork is the annotation by which Multus gives a pod another network in
// place of the cluster's own.
const defaultNetwork = "v1.multus-cni.io/default-network"

// phase is what differs between a container that is being created and one that runs.
type phase struct {
	timeout string // text of the error after the context ended
	// isolatesFailures has a request that fails skipped, so that the others are delivered.
	isolatesFailures bool
	// awaitsSockets accepts a host socket that does not exist yet. It is bound once it does.
	awaitsSockets bool
	// noMount and noDevice are why no mount or device node can be added; "" if they can.
	noMount, noDevice string
	// keeps reports whether the container has what an attachment brings, and keeps it without a
	// rule. An error means that this cannot be determined.
	keeps func(a *attachment.Attachment) (bool, error)
}

var creation = phase{
	timeout: "given up before the runtime's deadline",
	keeps:   func(*attachment.Attachment) (bool, error) { return false, nil },
}

// planner is the state of one resolution.
type planner struct {
	*Engine
	phase
	ctx     context.Context
	req     Request
	subject policy.Subject
	state
	search         *attachment.Search
	snapshot       *cdi.Snapshot
	cdiNames       []string      // requested CDI devices, where the snapshot is only for them
	usage          *policy.Usage // see Plan.Usage
	variables      map[string]envSetting
	explains       bool // the plan is only shown
	expectsHotplug bool // networks may be added while the container runs
	missing        int  // CDI devices that were not found
	items          []Item
	errs           []error
	unchecked      []error // see Plan.Unchecked
}

// plan resolves all requests. It returns false if nothing was requested or found.
func (p *planner) plan(ctx context.Context, req *Request) bool {
	annotated := p.isAnnotated(req.Annotations)
	asks := annotated || len(req.CDIDevices) > 0
	p.ctx, p.req, p.subject = ctx, *req, Subject(req)
	if !p.opts.ForAdministrator {
		p.subject.Explanations = new(MaxExplanations)
	}
	found, allocated, err := p.findAttachments(asks)
	hooks := p.hooksOf(req)
	if !asks && !slices.ContainsFunc(found, hasDevice) && len(allocated) == 0 && len(hooks) == 0 && err == nil {
		return false
	}
	p.b = edit.NewBuilder(req.Have)
	p.specs, p.devices = map[string]bool{}, map[string]bool{}
	var wants annotation.Requests
	if err == nil && annotated {
		if wants, err = annotation.Parse(req.Annotations, req.Container); err == nil {
			wants, err = wants.ExpandAliases(p.cfg.CDI.Aliases)
		}
	}
	if err != nil {
		p.fail(err)
		return true
	}
	if p.opts.Once {
		p.cdiNames = slices.Clone(req.CDIDevices)
		for _, d := range wants.Devices {
			if d.Kind == annotation.CDI {
				p.cdiNames = append(p.cdiNames, d.Name)
			}
		}
	}
	p.deliverPassedDevices()
	for _, d := range wants.Devices {
		p.deliverRequestedDevice(d)
	}
	p.deliverInjectorRequests()
	// "auto" in the annotation includes networks that are added later.
	p.expectsHotplug = wants.Networks.Mode == annotation.NetworksAuto && wants.Networks.Key != "" && p.opts.Staged()
	p.deliverNetworks(wants.Networks, found)
	p.deliverAllocated(allocated)
	p.deliverHooks(hooks)
	if len(p.errs) == 0 && (len(p.view) > 0 || p.expectsHotplug) {
		p.fail(p.addView())
	}
	if len(p.errs) == 0 {
		p.fail(p.checkLimits(p.countUsage()))
	}
	return true
}

// findAttachments finds the networks of the sandbox, and the devices that are allocated to the container
// and belong to no network. asks says that the container requests something.
func (p *planner) findAttachments(asks bool) (attached, allocated []attachment.Attachment, err error) {
	q := query(&p.req)
	q.Wanted = func(a *attachment.Attachment) bool { return asks || p.managesNetwork(p.subject, a) }
	if p.explains {
		q.Unread = func(err error) { p.unchecked = append(p.unchecked, err) }
	}
	p.search = p.attachments.Search(p.ctx, q)
	err = p.checkDirs(p.cfg.DeviceInfo.CNIDir)
	if err == nil && len(q.MetadataFiles) > 0 && q.Wanted(&attachment.Attachment{}) {
		err = p.checkDirs(p.cfg.Kubelet.PluginsDir)
	}
	switch {
	case err != nil && !asks && p.hooks != nil && !p.MayAsk(p.req.Annotations):
		return nil, nil, nil // the pod's networks are unknown, but it requests none, and may get hooks
	case err != nil:
		return nil, nil, err
	}
	return p.search.Find()
}

// deliverRequestedDevice delivers one device request of an annotation: an extended resource, or a CDI
// device or socket of the host by its name.
func (p *planner) deliverRequestedDevice(d annotation.Device) {
	item := Item{Kind: KindCDI, Name: d.Name, Request: cdiRequest(d.Name), From: d.Key, Optional: d.Optional}
	add := p.addCDI
	switch d.Kind {
	case annotation.Resource:
		p.deliverResource(d)
		return
	case annotation.NamedSocket:
		item.Kind, item.Request, add = KindSocket, "socket "+strconv.Quote(d.Name), p.addNamedSocket
	}
	p.deliver(item, func(item *Item) error {
		return inAnnotation(d.Key, d.Position, add(d.Name, item))
	})
}

// fail adds an error that is not nil.
func (p *planner) fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// result returns the plan, or an *Error.
func (p *planner) result() (*Plan, error) {
	if len(p.errs) > 0 {
		return nil, &Error{Container: p.req.Name(), Errs: p.errs, Items: p.items}
	}
	return &Plan{Set: *p.b.Set(), Staging: p.stage, Items: p.items, Usage: p.usage, Unchecked: p.unchecked}, nil
}

// staging returns what the plan needs on the host.
func (p *planner) staging() *edit.Container {
	if p.stage == nil {
		p.stage = &edit.Container{ID: p.req.ContainerID, SandboxID: p.req.SandboxID}
	}
	return p.stage
}

// addItem adds a request that is not delivered.
func (p *planner) addItem(item Item, o Outcome, err error) {
	item.Decline(o, err)
	p.items = append(p.items, item)
}

// deliver delivers one request and adds its item. An optional request that
// fails leaves nothing behind. f must not call deliver.
func (p *planner) deliver(item Item, f func(item *Item) error) {
	item.Request, item.Name = shorten(item.Request), shorten(item.Name)
	if err := p.inTime(); err != nil {
		p.fail(&RequestError{Request: item.Request, Err: err})
		return
	}
	optional := item.Optional || p.isolatesFailures
	var saved state
	if optional {
		saved = p.cloneState()
	}
	before := p.b.Changes()
	p.items = append(p.items, item)
	it := &p.items[len(p.items)-1]
	err := f(it)
	if err == nil && optional && p.req.CanDeliver != nil && p.b.Changes() != before {
		err = p.req.CanDeliver(p.b.Edits(), it.Request)
	}
	switch {
	case err == nil && it.Outcome != "":
	case err == nil && p.b.Changes() == before:
		it.Outcome = Present
	case err == nil:
		it.Outcome = Injected
	case optional:
		p.state = saved
		it.Decline(Skipped, err)
	case errdefs.IsPermissionDenied(err):
		it.Decline(Refused, err)
		p.fail(err)
	default:
		it.Decline(Failed, err)
		p.fail(err)
	}
}

// inTime returns an error once the caller has given up.
func (p *planner) inTime() error {
	if err := p.ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", p.timeout, err)
	}
	return nil
}

// state is what a resolution has so far. It can return to an earlier one.
type state struct {
	b       edit.Builder
	specs   map[string]bool // CDI files whose spec-level edits are in the set
	devices map[string]bool // CDI devices that are in the set
	stage   *edit.Container
	view    []viewEntry
}

func (s *state) cloneState() state {
	c := state{b: s.b.Clone(), specs: maps.Clone(s.specs), devices: maps.Clone(s.devices), view: s.view}
	if s.stage != nil {
		stage := *s.stage
		c.stage = &stage
	}
	return c
}
