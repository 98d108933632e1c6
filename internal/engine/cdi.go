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

// cdiRequest returns Item.Request of a CDI device.
func cdiRequest(name string) string { return "CDI device " + strconv.Quote(name) }

// cdiLookup looks up CDI devices for one container, all in the same snapshot of the spec files. It reads the files at
// the first lookup.
type cdiLookup struct {
	registry *cdi.Cache
	opts     *Options
	names    []string // if not nil, the snapshot has only these devices: a process for one container parses fewer files
	snapshot *cdi.Snapshot
}

// load reads the spec files, unless a directory is unresponsive.
func (l *cdiLookup) load() error {
	if l.snapshot != nil {
		return nil
	}
	if err := l.opts.checkDirs(l.opts.SpecDirs...); err != nil {
		return err
	}
	if l.names == nil {
		l.snapshot = l.registry.Snapshot()
	} else {
		l.snapshot = l.registry.SnapshotOf(l.names)
	}
	return nil
}

// find returns the devices that a name stands for, after load. It parses all files if the names' files lack the device.
func (l *cdiLookup) find(name string) ([]*cdi.Device, error) {
	devices, err := l.findLoaded(name)
	if l.names != nil && (err != nil || !slices.Contains(l.names, name)) {
		l.snapshot, l.names = l.registry.Snapshot(), nil
		devices, err = l.findLoaded(name)
	}
	return devices, err
}

func (l *cdiLookup) findLoaded(name string) ([]*cdi.Device, error) {
	if kind, all := strings.CutSuffix(name, "=all"); all {
		return l.snapshot.Expand(kind)
	}
	d, err := l.snapshot.Device(name)
	return []*cdi.Device{d}, err
}

// noteUnusable lists files and devices that "all" leaves out. An invalid file does not affect the devices of other
// files, but it is reported.
func (l *cdiLookup) noteUnusable(kind string) []string {
	const notAll = "not all of the kind's devices are usable"
	const maxListed = 3
	reasons := l.snapshot.Skipped(kind)
	var notes []string
	for _, err := range reasons[:min(len(reasons), maxListed)] {
		notes = append(notes, notAll+": "+err.Error())
	}
	if more := len(reasons) - maxListed; more > 0 {
		notes = append(notes, fmt.Sprintf("%s: %d more refused files, or devices of several files", notAll, more))
	}
	return notes
}

// resolveCDI adds the edits of a CDI device, or of every device of a kind for the name
// "all", after policy granted each. The edits of a spec file for all of its devices come once,
// before those of its first device.
func resolveCDI(in *inputs, d *delta, name string) error {
	if err := in.cdi.load(); err != nil {
		return err
	}
	devices, err := in.cdi.find(name)
	if err != nil {
		return lookupError(in, name, err)
	}
	if kind, all := strings.CutSuffix(name, "=all"); all && devices[0].Name != name {
		d.addNotes(in.cdi.noteUnusable(kind)...)
		if in.opts.ForAdministrator {
			d.addNotes(noteMembers(devices))
		}
	}
	for i, device := range devices {
		if i > 0 { // there may be tens of thousands
			if err := in.checkDeadline(); err != nil {
				return fmt.Errorf("%s, %d of its %d devices done: %w", cdiRequest(name), i, len(devices), err)
			}
		}
		if err := addCDIDevice(in, d, device); err != nil {
			return err
		}
	}
	return nil
}

// lookupError returns the error for a device that the registry does not return. It checks policy first, so that
// tenants cannot probe for devices of the node.
func lookupError(in *inputs, name string, err error) error {
	_, refused := in.policy.CDI(in.subject(), name)
	var refusal *policy.RefusedError
	switch {
	case refused == nil:
		return err
	case in.opts.ForAdministrator && errors.As(refused, &refusal):
		// A rule for a device that does not exist is no remedy.
		without := *refusal
		without.Lines = nil
		return &RequestError{Err: err, Hint: "policy would refuse the name as well: " + without.Error()}
	}
	return refused
}

// The notes of CDI devices with fields that an old OCI runtime leaves out. The adapters do not know which OCI runtime
// runs the container.
const (
	noteNetDevices = "an OCI runtime that does not know netDevices (runc before 1.4) leaves network devices out " +
		"and reports no error: run `jackfield doctor` on the node"
	noteRDT = "an OCI runtime that does not know intelRdt (runc 1.1, crun 1.8) leaves it out and reports no error: " +
		"run `jackfield doctor` on the node"
)

// addCDIDevice adds the edits of one CDI device.
func addCDIDevice(in *inputs, d *delta, device *cdi.Device) error {
	grant, err := in.policy.CDI(in.subject(), device.Name)
	if err != nil {
		return err
	}
	d.item.File, d.item.Rule = device.File, grant.Rule
	d.item.noteGrant(grant)
	if d.merged.cdiDevices[device.Name] {
		return nil
	}
	d.cdiDevices = append(d.cdiDevices, device.Name)
	netDevices := len(d.edits.Edits().NetDevices)
	origin := edit.Origin{Source: edit.CDI, Request: d.item.Request, File: device.File, Rule: grant.Rule}
	var env []string
	if !d.merged.specFiles[device.File] && !d.specFiles[device.File] {
		putEntry(&d.specFiles, device.File, true)
		env = append(env, device.SpecEdits.Env...)
		origin.Field = "containerEdits"
		if err := addCDIEdits(in, d, device.SpecEdits, origin); err != nil {
			return &RequestError{Request: cdiRequest(device.Name), Err: err}
		}
	}
	origin.Field = fmt.Sprintf("devices[%d].containerEdits", device.Index)
	if err := addCDIEdits(in, d, device.Edits, origin); err != nil {
		return &RequestError{Request: cdiRequest(device.Name), Err: err}
	}
	if in.opts.ForAdministrator {
		noteEnvClashes(d, device.Name, append(env, device.Edits.Env...))
	}
	if added := d.edits.Edits().NetDevices[netDevices:]; len(added) > 0 {
		d.addNotes(noteNetDevices)
		err := checkInterfaces(in, added)
		switch {
		case err != nil && in.opts.ForAdministrator && in.req.Have.CDIReplaces:
			d.addNotes(err.Error()) // a person edits an OCI spec, perhaps for another host
		case err != nil:
			return &RequestError{Request: cdiRequest(device.Name), File: device.File, Err: err}
		}
	}
	if d.edits.Edits().RDT != nil {
		d.addNotes(noteRDT)
	}
	return nil
}

// addCDIEdits adds the edits of one containerEdits object of a spec file. The origin's field is
// its place in the file, such as "devices[2].containerEdits".
func addCDIEdits(in *inputs, d *delta, e *specs.ContainerEdits, origin edit.Origin) error {
	adder := cdiedits.Adder{Host: in.host, Builder: d.edits}
	if user := in.req.User; user != nil {
		adder.UID, adder.GID = user.UID, user.GID
	}
	return adder.Add(e, origin)
}

// remediesOf returns the remedies for a device that was not found.
func (o *Options) remediesOf(notFound *cdi.NotFoundError, isShort bool) (remedies []string) {
	devices := "run `jackfield devices` to list the devices"
	if isShort {
		return []string{o.onNode(devices)}
	}
	if !o.ForAdministrator {
		remedies = append(remedies, "check the name")
	}
	if notFound.Kind == "nvidia.com/gpu" && notFound.Reason == cdi.NoSpec &&
		len(notFound.Explain().Mentions) == 0 {
		remedies = append(remedies, o.onNode("run `jackfield cdi generate nvidia` to create one from what the driver reports"))
	}
	var existing []string
	for _, dir := range notFound.Dirs() {
		if !dir.Missing {
			existing = append(existing, dir.Path)
		}
	}
	if len(existing) > 0 {
		devices += fmt.Sprintf(" and `jackfield validate %s` to check the files", strings.Join(existing, " "))
	}
	return append(remedies, o.onNode(devices))
}

// maxNotes bounds the lists in the notes of one request.
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

// noteEnvClashes adds a note for each variable that the device sets to another value than a device before it.
func noteEnvClashes(d *delta, device string, env []string) {
	for _, text := range env {
		e := edit.ParseEnv(text, edit.Origin{})
		before, ok := d.variables[e.Name]
		if !ok {
			before, ok = d.merged.variables[e.Name]
		}
		if ok && before.value == e.Value {
			continue
		}
		putEntry(&d.variables, e.Name, envSetting{e.Value, device})
		if ok && len(d.item.Notes) < maxNotes {
			d.addNotes(fmt.Sprintf("variable %s: %s sets %q, and %s sets %q; the last one counts",
				e.Name, before.device, before.value, device, e.Value))
		}
	}
}
