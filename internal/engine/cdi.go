// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/edit/cdiedits"
	"github.com/jackfield/jackfield/pkg/cdi"
)

func cdiRequest(name string) string {
	return "CDI device " + strconv.Quote(name)
}

// deliverPassedDevices delivers the CDI devices that the adapter passes, such as those of
// --cdi-device.
func (p *planner) deliverPassedDevices() {
	for _, name := range p.req.CDIDevices {
		p.deliver(Item{Kind: KindCDI, Name: name, Request: cdiRequest(name), From: "the command line"}, func(item *Item) error {
			return p.addCDI(name, item)
		})
	}
}

// addCDI adds the edits of a CDI device, or of every device of a kind for the name
// "all", after policy granted each. Spec-level edits come once for each file,
// before those of its first device.
func (p *planner) addCDI(name string, item *Item) error {
	if p.snapshot == nil {
		if err := p.checkDirs(p.opts.SpecDirs...); err != nil {
			return err
		}
		if p.cdiNames == nil {
			p.snapshot = p.registry.Snapshot()
		} else {
			p.snapshot = p.registry.SnapshotOf(p.cdiNames)
		}
	}
	devices, err := p.findCDI(name)
	if p.cdiNames != nil && (err != nil || !slices.Contains(p.cdiNames, name)) {
		p.snapshot, p.cdiNames = p.registry.Snapshot(), nil
		devices, err = p.findCDI(name)
	}
	if err != nil {
		return p.lookupError(name, err)
	}
	if kind, all := strings.CutSuffix(name, "=all"); all && devices[0].Name != name {
		item.Notes = append(item.Notes, p.noteUnusable(kind)...)
		if p.opts.ForAdministrator {
			item.Notes = append(item.Notes, noteMembers(devices))
		}
	}
	for i, d := range devices {
		if i > 0 { // there may be tens of thousands
			if err := p.inTime(); err != nil {
				return fmt.Errorf("%s, %d of its %d devices done: %w", cdiRequest(name), i, len(devices), err)
			}
		}
		if err := p.addCDIDevice(d, item); err != nil {
			return err
		}
	}
	return nil
}

// findCDI returns the devices that a name stands for.
func (p *planner) findCDI(name string) ([]*cdi.Device, error) {
	if kind, all := strings.CutSuffix(name, "=all"); all {
		return p.snapshot.Expand(kind)
	}
	d, err := p.snapshot.Device(name)
	return []*cdi.Device{d}, err
}

// noteNetDevices is for network devices of a CDI file. The adapters do not know which OCI runtime
// runs the container, and so not whether it supports them.
const noteNetDevices = "an OCI runtime that does not know netDevices (runc before 1.4) leaves network devices out and reports no error: run `jackfield doctor` on the node"

// noteUnusable lists what "all" does not deliver. A faulty file does not affect the devices of other
// files, but it is reported.
func (p *planner) noteUnusable(kind string) []string {
	const notAll = "not all of the kind's devices are usable"
	const maxListed = 3
	reasons := p.snapshot.Skipped(kind)
	var notes []string
	for _, err := range reasons[:min(len(reasons), maxListed)] {
		notes = append(notes, notAll+": "+err.Error())
	}
	if more := len(reasons) - maxListed; more > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d more refused files, or devices of several files", notAll, more))
	}
	return notes
}

// lookupError returns the error for a device that the registry does not return. Which devices the
// node has is not for everyone to know: a refusal comes first.
func (p *planner) lookupError(name string, err error) error {
	_, refused := p.policy.CDI(p.subject, name)
	var refusal *policy.RefusedError
	switch {
	case refused == nil:
		return p.shortenNotFound(err)
	case p.opts.ForAdministrator && errors.As(refused, &refusal):
		// A rule for a device that does not exist is no remedy.
		without := *refusal
		without.Lines = nil
		return &RequestError{Err: p.shortenNotFound(err), Hint: "policy would refuse the name as well: " + without.Error()}
	}
	return refused
}

// addCDIDevice adds the edits of one CDI device.
func (p *planner) addCDIDevice(d *cdi.Device, item *Item) error {
	name := d.Name
	grant, err := p.policy.CDI(p.subject, name)
	if err != nil {
		return err
	}
	item.File, item.Rule = d.File, grant.Rule
	item.noteGrant(grant)
	if p.devices[name] {
		return nil
	}
	netDevices := len(p.b.Edits().NetDevices)
	origin := edit.Origin{Source: edit.CDI, Request: item.Request, File: d.File, Rule: grant.Rule}
	var env []string
	if !p.specs[d.File] {
		env = append(env, d.SpecEdits.Env...)
		origin.Field = "containerEdits"
		if err := p.addCDIEdits(d.SpecEdits, origin); err != nil {
			return &RequestError{Request: cdiRequest(name), Err: err}
		}
		p.specs[d.File] = true
	}
	origin.Field = fmt.Sprintf("devices[%d].containerEdits", d.Index)
	if err := p.addCDIEdits(d.Edits, origin); err != nil {
		return &RequestError{Request: cdiRequest(name), Err: err}
	}
	p.devices[name] = true
	if p.opts.ForAdministrator {
		p.noteEnvClashes(name, append(env, d.Edits.Env...), item)
	}
	if len(p.b.Edits().NetDevices) > netDevices {
		item.Notes = append(item.Notes, noteNetDevices)
	}
	return nil
}

// maxExplained is the number of missing CDI devices of a container whose errors list what the node
// has: an annotation may name a thousand devices, and a node may have as many files.
const maxExplained = 8

func (p *planner) shortenNotFound(err error) error {
	if none, ok := errors.AsType[*cdi.NotFoundError](err); ok {
		p.missing++
		isShort := p.missing > maxExplained
		if isShort {
			none.Shorten()
		}
		none.Remedies = remediesOf(none, isShort)
	}
	return err
}

// remediesOf returns the commands that help with a device that was not found.
func remediesOf(none *cdi.NotFoundError, isShort bool) (remedies []string) {
	devices := "run `jackfield devices` to list the devices"
	if isShort {
		return []string{devices}
	}
	if none.Kind == "nvidia.com/gpu" && none.Reason == cdi.NoSpec && len(none.Explain().Mentions) == 0 {
		remedies = append(remedies, "run `jackfield cdi generate nvidia` to create one from what the driver reports")
	}
	var existing []string
	for _, dir := range none.Dirs() {
		if !dir.Missing {
			existing = append(existing, dir.Path)
		}
	}
	if len(existing) > 0 {
		devices += fmt.Sprintf(" and `jackfield validate %s` to check the files", strings.Join(existing, " "))
	}
	return append(remedies, devices)
}

// maxNotes bounds what the notes of one request list.
const maxNotes = 16

// noteMembers lists the devices that "all" stands for.
func noteMembers(devices []*cdi.Device) string {
	names := make([]string, 0, maxNotes)
	for _, d := range devices[:min(len(devices), maxNotes)] {
		names = append(names, d.Name)
	}
	text := "all stands for " + diag.Count(len(devices), "device") + ": " + strings.Join(names, ", ")
	if more := len(devices) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// envSetting is the value of a variable, and the CDI device that set it.
type envSetting struct{ value, device string }

// noteEnvClashes notes which variables of env the device sets to another value than a device before it.
func (p *planner) noteEnvClashes(device string, env []string, item *Item) {
	if p.variables == nil {
		p.variables = make(map[string]envSetting)
	}
	for _, text := range env {
		e := edit.ParseEnv(text, edit.Origin{})
		before, ok := p.variables[e.Name]
		if ok && before.value == e.Value {
			continue
		}
		p.variables[e.Name] = envSetting{e.Value, device}
		if ok && len(item.Notes) < maxNotes {
			item.Notes = append(item.Notes, fmt.Sprintf("variable %s: %s sets %q, and %s sets %q; the last one counts", e.Name, before.device, before.value, device, e.Value))
		}
	}
}

// addCDIEdits adds the edits of one containerEdits object of a spec file. The origin's field is
// its place in the file, such as "devices[2].containerEdits".
func (p *planner) addCDIEdits(e *specs.ContainerEdits, origin edit.Origin) error {
	adder := cdiedits.Adder{Host: p.host, Builder: &p.b}
	if user := p.req.User; user != nil {
		adder.UID, adder.GID = user.UID, user.GID
	}
	return adder.Add(e, origin)
}
