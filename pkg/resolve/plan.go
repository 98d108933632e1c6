// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/staging"
)

// Resolve works out what the container gets. A container that asks for nothing,
// and for whose sandbox there is nothing on the node, is nil without an error.
//
// The error is an *Error with every request that failed; the sentinels below it
// are those of the parts (not found, permission denied, conflict, ...).
func (e *Engine) Resolve(ctx context.Context, req *Request) (*Plan, error) {
	p := planner{Engine: e}
	if !p.plan(ctx, req) {
		return nil, nil
	}
	if len(p.errs) > 0 {
		return nil, &Error{Container: req.Name(), Errs: p.errs, Items: p.items}
	}
	m := p.memory
	plan := &m.plan
	if set := p.b.Set(); set != &plan.Set {
		plan.Set = *set
	}
	plan.Staging, plan.Items, plan.Usage, plan.memory = p.stage, p.items, p.counted, m
	return plan, nil
}

// Explain is Resolve without a consequence: nothing is reserved in the Ledger, and the
// items are there when it fails, too.
func (e *Engine) Explain(ctx context.Context, req *Request) (*Plan, error) {
	p := planner{Engine: e, explains: true}
	if !p.plan(ctx, req) {
		return &Plan{}, nil
	}
	if len(p.errs) > 0 {
		return &Plan{Items: p.items}, &Error{Container: req.Name(), Errs: p.errs, Items: p.items}
	}
	return &Plan{Set: *p.b.Set(), Staging: p.stage, Items: p.items, Usage: p.counted}, nil
}

// planner is one resolution under way. It lies on the stack, where writing to it is no
// work for the garbage collector.
type planner struct {
	*Engine
	ctx      context.Context
	req      Request
	subject  policy.Subject
	b        edits.Builder
	memory   *memory
	snapshot *cdiregistry.Snapshot
	specs    names // CDI files whose spec-level edits are in the set
	devices  names // CDI devices that are in the set
	stage    *staging.Container
	view     []viewEntry
	counted  *policy.Usage
	envOf    map[string]envSetting
	running  bool // the container runs already
	explains bool // the plan is for nobody's use
	awaits   bool // networks may come while it runs
	missing  int  // CDI devices that were not found
	items    []Item
	errs     []error
	// unchecked is what a running container may have, and could not be checked.
	unchecked []error
}

// Nothing reports that Resolve would give nothing for the container, as cheaply as
// that can be told; false is no answer. It reads no file.
func (e *Engine) Nothing(sandboxID string, annotations map[string]string, env []string) bool {
	return e.hooks == nil && !e.asks(annotations) && e.attachments.Nothing(sandboxID, annotations[attachment.NetworksAnnotation], env)
}

// Warm prepares for the containers of a sandbox that was just made. The request
// is of the pod: no container's name, and nothing that one has.
func (e *Engine) Warm(req *Request) {
	if e.answering(e.cfg.DeviceInfo.CNIDir, e.cfg.Multus.CacheDir) != nil {
		return
	}
	q := query(req)
	subject := policy.Subject{Namespace: req.Namespace, Pod: req.Pod, Labels: req.Labels, RuntimeHandler: req.RuntimeHandler, LabelsUnknown: req.LabelsUnknown, HandlerUnknown: req.HandlerUnknown}
	q.Wanted = func(a *attachment.Attachment) bool { return e.asks(req.Annotations) || e.inCharge(subject, a) }
	e.attachments.Warm(q)
}

// Subject is the request's container, as a policy is asked about it.
func Subject(req *Request) policy.Subject {
	return policy.Subject{Namespace: req.Namespace, Pod: req.Pod, Container: req.Container, Labels: req.Labels,
		RuntimeHandler: req.RuntimeHandler, LabelsUnknown: req.LabelsUnknown, HandlerUnknown: req.HandlerUnknown, Image: req.Image}
}

// plan works it all out. It reports false where nothing was asked for or found.
func (p *planner) plan(ctx context.Context, req *Request) bool {
	e := p.Engine
	annotated := e.asks(req.Annotations)
	asks := annotated || len(req.CDIDevices) > 0
	subject := Subject(req)
	var (
		found, allocated []attachment.Attachment
		err              error
	)
	if err = e.answering(e.cfg.DeviceInfo.CNIDir); err != nil {
		// What the pod's networks are cannot be told. One that has none to ask for is not
		// kept from the node by that, nor its hooks from it.
		if !asks && e.hooks != nil && !e.MayAsk(req.Annotations) {
			err = nil
		}
	} else if !e.attachments.Nothing(req.SandboxID, req.Annotations[attachment.NetworksAnnotation], req.Have.Env) {
		found, allocated, err = e.find(ctx, req, &subject, asks)
	}
	hooks := e.hooksOf(req)
	if !asks && !slices.ContainsFunc(found, worthSaying) && len(allocated) == 0 && len(hooks) == 0 && err == nil {
		return false
	}
	p.ctx, p.req, p.subject = ctx, *req, subject
	p.memory = e.memory()
	p.b = edits.NewBuilder(&p.memory.plan.Set, req.Have)
	if err != nil {
		p.errs = append(p.errs, err)
		return true
	}
	var wants annotation.Requests
	if annotated {
		if wants, err = annotation.Parse(req.Annotations, req.Container); err == nil {
			wants, err = wants.ExpandAliases(e.cfg.CDI.Aliases)
		}
	}
	if err != nil {
		p.errs = append(p.errs, err)
		return true
	}
	p.items = slices.Grow(p.memory.plan.Items, len(req.CDIDevices)+len(wants.Devices)+len(found)+len(allocated))
	p.doorDevices()
	for _, d := range wants.Devices {
		p.device(d)
	}
	p.injector()
	// Whoever writes "auto" means networks that come later as well.
	p.awaits = wants.Networks.Mode == annotation.NetworksAuto && wants.Networks.Key != "" && p.staged()
	p.networks(wants.Networks, found)
	p.allocated(allocated)
	p.hooksd(hooks)
	if len(p.errs) == 0 {
		if err := p.addView(); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	if len(p.errs) == 0 {
		if err := p.limit(); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	return true
}

// find looks for what the container has on the node without having asked for it.
func (e *Engine) find(ctx context.Context, req *Request, s *policy.Subject, asks bool) (found, allocated []attachment.Attachment, err error) {
	q, subject := query(req), *s
	q.Wanted = func(a *attachment.Attachment) bool { return asks || e.inCharge(subject, a) }
	return e.attachments.Find(ctx, q)
}

// staging is what the plan needs on the host, made at first need.
func (p *planner) staging() *staging.Container {
	if p.stage == nil {
		p.stage = &staging.Container{ID: p.req.ContainerID, SandboxID: p.req.SandboxID}
	}
	return p.stage
}

// maxRequest bounds what a request is called, in bytes: its asker may write as much as
// an annotation holds, and it ends in logs, in the status and before a person.
const maxRequest = 512

// attempt delivers one request and writes its item. An optional request that
// fails leaves nothing behind. What delivers makes no attempt of its own.
func (p *planner) attempt(item Item, optional bool, deliver func(item *Item) error) {
	item.Optional = optional
	optional = optional || p.running
	if len(item.Request) > maxRequest {
		item.Request = fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(item.Request[:maxRequest], ""), len(item.Request))
	}
	if err := p.inTime(); err != nil {
		p.errs = append(p.errs, fmt.Errorf("%s: %w", item.Request, err))
		return
	}
	var saved *state
	if optional {
		saved = p.save()
	}
	before := p.b.Changes()
	p.items = append(p.items, item)
	it := &p.items[len(p.items)-1]
	err := deliver(it)
	if err == nil && optional && p.req.Carries != nil && p.b.Changes() != before {
		err = p.req.Carries(p.b.Edits(), it.Request)
	}
	switch {
	case err == nil:
		if it.Outcome == "" {
			it.Outcome = Injected
			if p.b.Changes() == before {
				it.Outcome = Present
			}
		}
	case optional:
		p.restore(saved)
		it.Outcome, it.Reason, it.Err = Skipped, err.Error(), err
	default:
		it.Outcome, it.Reason, it.Err = Failed, err.Error(), err
		if errdefs.IsPermissionDenied(err) {
			it.Outcome = Refused
		}
		p.errs = append(p.errs, err)
	}
}

func (p *planner) inTime() error {
	switch err := p.ctx.Err(); {
	case err == nil:
		return nil
	case p.running:
		return fmt.Errorf("out of time: %w", err)
	default:
		return fmt.Errorf("given up before the runtime's deadline: %w", err)
	}
}

// state is how far a resolution had come.
type state struct {
	b              edits.Builder
	specs, devices names
	stage          *staging.Container
	view           []viewEntry
}

func (p *planner) save() *state {
	s := &state{b: p.b.Clone(), specs: p.specs.clone(), devices: p.devices.clone(), view: p.view}
	if p.stage != nil {
		stage := *p.stage
		s.stage = &stage
	}
	return s
}

func (p *planner) restore(s *state) {
	p.b, p.specs, p.devices, p.stage, p.view = s.b, s.specs, s.devices, s.stage, s.view
}

// doorDevices are the CDI devices the door was given itself.
func (p *planner) doorDevices() {
	for _, name := range p.req.CDIDevices {
		p.attempt(Item{Kind: KindCDI, Request: cdiRequest(name), From: "the command line"}, false, func(item *Item) error {
			return p.cdi(name, item)
		})
	}
}

// device is one device request of an annotation.
func (p *planner) device(d annotation.Device) {
	if d.Kind == annotation.Resource {
		p.resource(d)
		return
	}
	name := d.Name()
	p.attempt(Item{Kind: KindCDI, Request: cdiRequest(name), From: d.Key}, d.Optional, func(item *Item) error {
		if err := p.cdi(name, item); err != nil {
			return fmt.Errorf("annotation %s, item %d: %w", d.Key, d.Position, err)
		}
		return nil
	})
}

func cdiRequest(name string) string {
	if isPlain(name) {
		return `CDI device "` + name + `"`
	}
	return string(strconv.AppendQuote(append(make([]byte, 0, 128), "CDI device "...), name))
}

// isPlain reports whether quoting a string leaves it as it is.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// cdi adds the edits of a CDI device, or of every device of a kind for the name
// "all", after policy granted each. Spec-level edits come once for each file,
// before those of its first device.
func (p *planner) cdi(name string, item *Item) error {
	if p.snapshot == nil {
		if err := p.answering(p.specDirs...); err != nil {
			return err
		}
		p.snapshot = p.registry.Snapshot()
	}
	kind, all := strings.CutSuffix(name, "=all")
	if !all {
		return p.cdiDevice(name, item)
	}
	devices, err := p.snapshot.Expand(kind)
	if err != nil {
		return p.noDevice(name, err)
	}
	if devices[0].Name != name {
		item.Notes = append(item.Notes, p.leftOut(kind)...)
		if p.forAdministrator {
			item.Notes = append(item.Notes, noteMembers(devices))
		}
	}
	for i, d := range devices {
		if i > 0 { // there may be tens of thousands
			if err := p.inTime(); err != nil {
				return fmt.Errorf("%s, %d of its %d devices done: %w", cdiRequest(name), i, len(devices), err)
			}
		}
		if err := p.cdiDevice(d.Name, item); err != nil {
			return err
		}
	}
	return nil
}

// noteNetDevices is for network devices of a CDI file: no adapter is told which program
// runs the container, so none can know whether it takes them.
const noteNetDevices = "an OCI runtime that does not know netDevices (runc before 1.4) leaves network devices out and reports no error: run `jackfield doctor` on the node"

// leftOut says what "all" does not bring: one bad file keeps nobody from the devices of
// the others, and is not to be passed over in silence.
func (p *planner) leftOut(kind string) []string {
	const notAll = "not all of the kind's devices are usable"
	why, count := p.snapshot.LeftOut(kind)
	var notes []string
	for _, err := range why {
		notes = append(notes, notAll+": "+err.Error())
	}
	if more := count - len(why); more > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d more refused files, or devices of several files", notAll, more))
	}
	return notes
}

// noDevice is why there is no device of a name. Whether there is one is not for
// everyone to know: a refusal comes first.
func (p *planner) noDevice(name string, err error) error {
	_, refused := p.policy.CDI(p.subject, name)
	var refusal *policy.RefusedError
	switch {
	case refused == nil:
		return p.notFound(err)
	case p.forAdministrator && errors.As(refused, &refusal):
		// A rule for a device that does not exist is no remedy.
		without := *refusal
		without.Lines = nil
		return fmt.Errorf("%w; policy would refuse the name as well: %v", p.notFound(err), &without)
	}
	return refused
}

// cdiDevice adds the edits of one CDI device.
func (p *planner) cdiDevice(name string, item *Item) error {
	d, err := p.snapshot.Find(name)
	if err != nil {
		return p.noDevice(name, err)
	}
	grant, err := p.policy.CDI(p.subject, name)
	if err != nil {
		return err
	}
	item.File, item.Rule = d.File, grant.Rule
	noteAudit(item, grant)
	if p.devices.has(name) {
		return nil
	}
	netDevices := len(p.b.Edits().NetDevices)
	origin := edits.Origin{Source: edits.CDI, Request: item.Request, File: d.File, Rule: grant.Rule}
	if !p.specs.has(d.File) {
		origin.Field = "containerEdits"
		if err := p.cdiEdits(d.SpecEdits(&p.memory.lists), origin); err != nil {
			return fmt.Errorf("%s: %w", cdiRequest(name), err)
		}
		p.specs.add(d.File)
	}
	origin.Field = editsField(d.Index)
	if err := p.cdiEdits(d.Edits(&p.memory.lists), origin); err != nil {
		return fmt.Errorf("%s: %w", cdiRequest(name), err)
	}
	p.devices.add(name)
	if p.forAdministrator {
		p.noteEnvClashes(name, item)
	}
	if len(p.b.Edits().NetDevices) > netDevices {
		item.Notes = append(item.Notes, noteNetDevices)
	}
	return nil
}

// explained is for how many CDI devices of a container that are not there the
// error says what is: an annotation may name a thousand, a node have as many files.
const explained = 8

func (p *planner) notFound(err error) error {
	var none *cdiregistry.NotFoundError
	if errors.As(err, &none) {
		if p.missing++; p.missing > explained {
			none.Shorten()
		}
	}
	return err
}

// editsField is the place of a device's edits in its file.
func editsField(index int) string {
	// Most files have few devices, for which the text is there already.
	const fields = "devices[0].containerEditsdevices[1].containerEditsdevices[2].containerEditsdevices[3].containerEdits" +
		"devices[4].containerEditsdevices[5].containerEditsdevices[6].containerEditsdevices[7].containerEdits"
	const length = len("devices[0].containerEdits")
	if at := index * length; at < len(fields) {
		return fields[at : at+length]
	}
	return "devices[" + strconv.Itoa(index) + "].containerEdits"
}

// noteAudit keeps what mode enforce would have said.
func noteAudit(item *Item, g policy.Grant) {
	if g.Audited && item.Audit == "" && g.Refusal != nil {
		item.Audit = g.Refusal.Error()
	}
}

// isRefusal reports whether a policy, and nothing else, stands in the way.
func isRefusal(err error) bool {
	var r *policy.RefusedError
	return errors.As(err, &r)
}
