// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/explain"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
)

// explainText is explanations for a person.
type explainText struct {
	strings.Builder
	cfg *config.Config
}

func (t *explainText) writeExplanation(x *explain.Explanation) {
	fmt.Fprintf(t, "Container %s %s.\n", plain(x.Container), verdictText(x))
	for _, p := range x.Problems {
		t.WriteByte('\n')
		t.writeReason(p, &engine.Item{})
	}
	for _, source := range x.NotRead {
		fmt.Fprintf(t, "\n  not read: %s\n", plain(source))
	}
	view, _ := devices.Parse(x.View) // the engine wrote it
	for i := range x.Requests {
		t.writeRequest(&x.Requests[i], view, &x.Edits)
	}
	for i := range x.NotChecked {
		it := &x.NotChecked[i]
		// One line: the reason is a remedy.
		fmt.Fprintf(t, "\n  %s: %s (%s)\n", plain(it.Request), outcomeText(it.Outcome), plain(it.Reason))
		t.writeLine("asked", "by "+requesterText(it.From))
		for _, n := range it.Notes {
			t.writeLine("note", n)
		}
	}
	t.writeEdits(&x.Edits, "\n  For the application to find them\n",
		func(o edit.Origin) bool { return o.Source == edit.SourceJackfield })
}

func verdictText(x *explain.Explanation) string {
	// The first line has the verdict, with the reason if there is no request to blame.
	switch {
	case x.Missing:
		return "is not in the pod"
	case x.Verdict == explain.Refused:
		return colored(red, "would be refused")
	case x.Verdict == explain.Incomplete && x.Edits.Empty():
		return "is not fully checked; what was checked would leave it as it is"
	case x.Verdict == explain.Incomplete:
		return "is not fully checked; what was checked would be created with this"
	case len(x.Requests) == 0:
		return "requests nothing and would be created unchanged"
	case x.Edits.Empty():
		return "would be created as it is"
	}
	return "would be created with this"
}

func (t *explainText) writeRequest(it *engine.Item, view []devices.Device, set *edit.Set) {
	fmt.Fprintf(t, "\n  %s: %s\n", plain(it.Request), outcomeText(it.Outcome))
	if it.File != it.From && it.From != "" {
		asked := "by " + requesterText(it.From)
		if in, ok := it.Err.(*engine.RequestError); ok && in.Position > 0 {
			asked += fmt.Sprintf(", item %d", in.Position)
		}
		t.writeLine("asked", asked)
	}
	t.writeLine("file", it.File)
	t.writeLine("rule", it.Rule)
	for i := range view {
		if d := &view[i]; viewedBy(d, it) {
			t.writeSocket(d, it.Kind)
		}
	}
	t.writeEdits(set, "", func(o edit.Origin) bool { return o.Request == it.Request && o.Source != edit.SourceJackfield })
	for _, n := range it.Notes {
		t.writeLine("note", n)
	}
	if it.Err != nil {
		t.writeReason(it.Err, it)
	}
	if len(it.Audits) > 0 {
		t.writeLine("audit", "granted by mode audit alone; mode enforce would refuse it")
	}
	for _, err := range it.Audits {
		t.writeReason(err, it)
	}
}

func outcomeText(o engine.Outcome) string { return colored(stateColor(string(o)), string(o)) }

// requesterText is an annotation, or an adapter's own input in its own words.
func requesterText(from string) string {
	if strings.Contains(from, " ") {
		return from
	}
	return "annotation " + from
}

func (t *explainText) writeLine(name, value string) {
	if value != "" {
		fmt.Fprintf(t, "    %-7s %s\n", name, plain(value))
	}
}

// writeReason prints why a request is not injected: each fault of device-info on a line, each place that was
// searched on a line, and the lines of YAML that allow it, so that they can be copied. It leaves out the parts
// that the lines around it show: the request, its annotation and its file.
func (t *explainText) writeReason(err error, it *engine.Item) {
	place := ""
	var hints []string
	for request, ok := err.(*engine.RequestError); ok; request, ok = err.(*engine.RequestError) {
		unknown := *request
		for part, known := range map[*string]string{&unknown.Annotation: it.From, &unknown.Request: it.Request,
			&unknown.File: it.File} {
			if *part == known {
				*part = ""
			}
		}
		place += unknown.Place()
		if request.Hint != "" {
			hints = append(hints, request.Hint)
		}
		err = request.Err
	}
	// The typed errors come first: they hold the parts of their message, so that each part gets its own line. Any
	// other error is one text.
	switch e := err.(type) {
	case deviceinfo.FieldErrors, *deviceinfo.FieldError, diag.List, *diag.Diagnostic:
		for _, d := range diag.All("", err) {
			known := *d
			if known.File == it.File {
				known.File = ""
			}
			t.writeLine("why", place+known.Error())
		}
	case *cdi.NotFoundError:
		problem, details := e.Parts()
		t.writeLine("why", place+problem)
		hints = append(details, hints...)
	case *policy.RefusedError:
		if e.Item() != it.Request {
			place += e.Item() + ": "
		}
		t.writeLine("why", place+e.Reason())
		t.writeRemedy("to allow it, ", e)
	case *engine.UnmanagedError:
		t.writeLine("why", place+e.Why())
		t.writeRemedy("to deliver it, ", e.Refusal)
	default:
		t.writeLine("why", place+diag.ErrorText(err))
	}
	for _, hint := range hints {
		t.writeLine("", hint)
	}
}

// writeRemedy prints the lines of YAML that prevent a refusal.
func (t *explainText) writeRemedy(purpose string, refused *policy.RefusedError) {
	if refused == nil || len(refused.Lines) == 0 {
		return
	}
	t.writeLine("remedy", purpose+"add to "+refused.RemedyPlace()+":")
	for _, l := range refused.Lines {
		fmt.Fprintf(t, "              %s\n", plain(l))
	}
}

// viewedBy reports whether an element of devices.json is of a request. A claim's device is in it under the claim's
// name, or under the name of its network.
func viewedBy(d *devices.Device, it *engine.Item) bool {
	switch it.Kind {
	case engine.KindNetwork:
		return d.Name == it.Name && d.Interface == it.Interface
	case engine.KindClaim:
		return d.Name == it.Name && d.Jackfield.Claim != nil
	case engine.KindSocket:
		return d.Name == "socket:"+it.Name
	}
	return false
}

// writeSocket prints where the container finds a socket and which side creates it. Dialects describe
// this differently.
func (t *explainText) writeSocket(d *devices.Device, kind engine.RequestKind) {
	socket := d.Socket()
	if socket == "" {
		return
	}
	if d.Jackfield.OwnPath != "" && d.Jackfield.OwnPath != socket {
		socket += ", and " + d.Jackfield.OwnPath
	}
	t.writeLine("socket", socket)
	driver := ""
	if kind == engine.KindClaim {
		driver = d.Jackfield.Claim.Driver
	}
	maker := "created by the " + d.Jackfield.CreatedBy
	if dialect := t.cfg.Dialect(d.Name, d.Jackfield.Resource, driver); dialect.Match != (config.DialectMatch{}) {
		maker += fmt.Sprintf(", in the dialect %q that the configuration gives it", dialect.Use)
	}
	t.writeLine("", maker)
}

// writeEdits prints the edits whose origin is wanted, after a heading if there are any.
func (t *explainText) writeEdits(s *edit.Set, heading string, want func(edit.Origin) bool) {
	add := func(o edit.Origin, kind, format string, args ...any) {
		if want(o) {
			t.WriteString(heading)
			heading = ""
			t.writeLine(kind, fmt.Sprintf(format, args...))
		}
	}
	for i := range s.Devices {
		d := &s.Devices[i]
		add(d.Origin, "device", "%s", deviceText(d))
	}
	for _, m := range s.Mounts {
		add(m.Origin, "mount", "%s from %s (%s)", m.Destination, m.Source, strings.Join(m.Options, ","))
	}
	for _, e := range s.Env {
		add(e.Origin, "env", "%s=%s", e.Name, e.Value)
	}
	for _, h := range s.Hooks {
		words := append([]string{string(h.Stage), h.Path}, h.Args[min(1, len(h.Args)):]...)
		add(h.Origin, "hook", "%s", strings.Join(words, " "))
	}
	for _, n := range s.NetDevices {
		add(n.Origin, "netdev", "%s as %s", n.HostName, n.Name)
	}
	for _, g := range s.GIDs {
		add(g.Origin, "group", "%d", g.ID)
	}
	if s.RDT != nil {
		add(s.RDT.Origin, "rdt", "class %q", s.RDT.ClosID)
	}
	if m := s.Memlock; m != nil {
		add(m.Origin, "memlock", "%s (RLIMIT_MEMLOCK, of rule %q)", m.Soft, m.Origin.Rule)
	}
}

// deviceText is a device node: path, type and numbers, access, owner, source.
func deviceText(d *edit.Device) string {
	s := fmt.Sprintf("%s (%s %d:%d", d.Path, d.Type, d.Major, d.Minor)
	if d.Access != "" {
		s += " " + d.Access
	}
	if d.UID != nil {
		s += fmt.Sprintf(" uid %d", *d.UID)
	}
	if d.GID != nil {
		s += fmt.Sprintf(" gid %d", *d.GID)
	}
	s += ")"
	if d.HostPath != "" && d.HostPath != d.Path {
		s += " from " + d.HostPath
	}
	return s
}
