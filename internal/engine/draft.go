// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/devices"
)

// draft is a plan in the making: the deltas that are merged so far, and the items of all candidates.
type draft struct {
	in    *inputs
	edits *edit.Builder
	host  edit.Container
	view  []viewEntry

	specFiles, cdiDevices map[string]bool // see delta
	variables             map[string]envSetting
	held                  []HeldDevice
	heldPaths             map[string]bool

	items     []Item
	errs      []error // of candidates that fail the container
	unchecked []error // see Plan.Unchecked
	usage     *policy.Usage
	notFound  int // CDI devices that no file declares
}

func newDraft(in *inputs) *draft {
	have := in.req.Have
	if in.running {
		have = edit.Existing{Mounts: have.Mounts}
	}
	return &draft{in: in, edits: edit.NewBuilder(have),
		host: edit.Container{ID: in.req.ContainerID, SandboxID: in.req.SandboxID, Label: in.cfg.Sockets.SELinuxLabel}}
}

// addFrom adds the candidates of sources, in order.
func (p *draft) addFrom(sources ...source) {
	for _, addCandidates := range sources {
		p.fail(addCandidates(p.in, p.add))
	}
}

// add resolves a candidate and checks its delta. It merges the delta, or records in the item why the delta is dropped.
func (p *draft) add(c candidate) {
	if c.unchecked != nil {
		p.addUnchecked(c.unchecked)
	}
	if c.device != nil && p.hasDevice(c.device) {
		return
	}
	if c.resolve == nil {
		p.items = append(p.items, c.item)
		return
	}
	c.item.Request, c.item.Name = shorten(c.item.Request), shorten(c.item.Name)
	if err := p.in.checkDeadline(); err != nil {
		p.fail(&RequestError{Request: c.item.Request, Err: err})
		return
	}
	optional := c.item.Optional || p.in.running
	d := &delta{merged: p, item: &c.item, edits: p.edits.Delta()}
	err := c.resolve(d)
	if err == nil {
		p.in.raiseMemlockForEdits(d)
		err = d.checkVisible()
	}
	if err == nil {
		err = p.in.checkHolders(d)
		p.in.noteUnopenable(d)
	}
	if err == nil && optional {
		err = d.checkDeliverable(p.in.req)
	}
	switch {
	case err != nil:
		p.decline(d.item, optional, err)
	case d.item.Outcome == "" && d.edits.Changes() == 0:
		d.item.Outcome = Present
	case d.item.Outcome == "":
		d.item.Outcome = Injected
	}
	if d.item.Outcome == Injected || d.item.Outcome == Present {
		p.merge(d)
	}
	p.items = append(p.items, c.item)
}

// decline sets the outcome of a candidate that failed. Unless it is optional, the container fails.
func (p *draft) decline(item *Item, optional bool, err error) {
	p.explainNotFound(err)
	switch {
	case optional:
		item.SetOutcome(Skipped, err)
		return
	case errdefs.IsPermissionDenied(err):
		item.SetOutcome(Refused, err)
	default:
		item.SetOutcome(Failed, err)
	}
	p.fail(err)
}

// maxExplained is the number of missing CDI devices of a container whose errors list the devices and files of
// the node: an annotation can name a thousand devices, and a node can have as many files.
const maxExplained = 8

// explainNotFound completes the error of a CDI device that no file declares.
func (p *draft) explainNotFound(err error) {
	notFound, ok := errors.AsType[*cdi.NotFoundError](err)
	if !ok {
		return
	}
	p.notFound++
	isShort := p.notFound > maxExplained
	if isShort {
		notFound.Shorten()
	}
	notFound.Remedies = p.in.opts.remediesOf(notFound, isShort)
}

// merge adds a delta to the plan.
func (p *draft) merge(d *delta) {
	p.edits.Merge(d.edits)
	p.host.Dirs = append(p.host.Dirs, d.host.Dirs...)
	p.host.Sockets = append(p.host.Sockets, d.host.Sockets...)
	p.host.SocketDirs = append(p.host.SocketDirs, d.host.SocketDirs...)
	for _, name := range d.cdiDevices {
		putEntry(&p.cdiDevices, name, true)
	}
	for file := range d.specFiles {
		putEntry(&p.specFiles, file, true)
	}
	for name, setting := range d.variables {
		putEntry(&p.variables, name, setting)
	}
	if d.view != nil {
		p.mergeView(*d.view)
	}
	for _, h := range d.held {
		if !p.heldPaths[h.Path] {
			putEntry(&p.heldPaths, h.Path, true)
			p.held = append(p.held, h)
		}
	}
}

// mergeView adds an entry to the container's view. A device has one entry: if a network and an annotation deliver
// the device, the entry of the network.
func (p *draft) mergeView(v viewEntry) {
	at := slices.IndexFunc(p.view, func(have viewEntry) bool {
		return have.isSame(v.address, v.element.Jackfield.Claim)
	})
	switch {
	case at < 0:
		p.view = append(p.view, v)
	case p.view[at].element.Interface == "":
		p.view[at] = v
	}
}

// hasDevice reports whether the container's view has the device already.
func (p *draft) hasDevice(a *attachment.Attachment) bool {
	address, claim := deviceAddress(a.Info), claimOf(a)
	return slices.ContainsFunc(p.view, func(v viewEntry) bool { return v.isSame(address, claim) })
}

// addView adds devices.json, the mount with it, and the environment.
func (p *draft) addView() error {
	list, err := p.addViewFile()
	if err != nil {
		return err
	}
	origin := edit.Origin{Source: edit.SourceJackfield, Request: "devices.json"}
	env := []edit.Env{{Name: devices.FileVariable, Value: path.Join(ContainerDir, ViewFile)}}
	for i := range list {
		for _, v := range list[i].Variables(p.view[i].names...) {
			env = append(env, edit.Env{Name: v.Name, Value: v.Value})
		}
	}
	for _, e := range env {
		e.Origin = origin
		if err := p.edits.AddEnv(&e); err != nil {
			return err
		}
	}
	m := stagedMount(p.in, ContainerDir, "", false, origin)
	if !p.in.opts.Staged() {
		m.Options = []string{"bind", "ro", "rprivate", "nosuid", "nodev", "noexec"}
	}
	return p.edits.AddMount(m)
}

// addViewFile adds devices.json and returns its elements.
func (p *draft) addViewFile() ([]devices.Device, error) {
	if err := checkVariables(p.view); err != nil {
		return nil, err
	}
	memlock := ""
	if slices.ContainsFunc(p.view, func(v viewEntry) bool { return v.pins }) {
		memlock = p.viewedMemlock()
	}
	list := listDevices(p.view, memlock)
	data, err := encodeView(list)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", ViewFile, err)
	}
	p.host.Files = append(p.host.Files, edit.File{Name: ViewFile, Data: data})
	return list, nil
}

// fail adds an error of the container that is not nil.
func (p *draft) fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// addUnchecked adds the error of a source that cannot be read.
func (p *draft) addUnchecked(err error) { p.unchecked = append(p.unchecked, err) }

// countUsage counts the things that the plan delivers. The mounts of sockets count as sockets, and
// Jackfield's own edits do not count.
func (p *draft) countUsage() policy.Usage {
	set := p.edits.Edits()
	u := policy.Usage{CDI: len(p.cdiDevices), Devices: len(set.Devices), Hooks: len(set.Hooks)}
	for i := range set.Mounts {
		if s := set.Mounts[i].Origin.Source; s != edit.Attachment && s != edit.SourceJackfield {
			u.Mounts++
		}
	}
	for i := range p.view {
		if p.view[i].isSocket {
			u.Sockets++
		}
	}
	return u
}

// checkLimits checks the usage of the container against the limits of the rules.
func (p *draft) checkLimits(u policy.Usage) error {
	in := p.in
	if !in.policy.HasLimits() {
		return nil
	}
	check := func(others policy.Usage) error {
		refused, audited := in.policy.Limit(in.subject(), u, others)
		if audited != nil && len(p.items) > 0 {
			p.items[len(p.items)-1].addAudit(audited)
		}
		return refused
	}
	if !in.policy.HasPodLimits(in.subject()) {
		return check(policy.Usage{})
	}
	p.usage = &u
	if in.opts.Ledger == nil {
		return check(policy.Usage{})
	}
	return in.opts.Ledger.reserve(in, u, check)
}

// result returns the plan, or an *Error.
func (p *draft) result() (*Plan, error) {
	if len(p.errs) > 0 {
		return nil, &Error{Container: p.in.req.Name(), Errs: p.errs, Items: p.items}
	}
	plan := &Plan{Set: *p.edits.Set(), Items: p.items, Usage: p.usage, Unchecked: p.unchecked,
		Devices: p.held}
	if h := &p.host; len(h.Files)+len(h.Dirs)+len(h.Sockets)+len(h.SocketDirs) > 0 {
		plan.Staging = h
	}
	return plan, nil
}
