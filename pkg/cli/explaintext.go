// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// explainText writes one explanation for a person.
type explainText struct {
	x   *explanation
	cfg *config.Config
	b   *strings.Builder
}

func (t *explainText) write() {
	x := t.x
	fmt.Fprintf(t.b, "Container %s %s.\n", plain(x.Container), verdictText(x))
	for _, p := range x.problems {
		t.b.WriteByte('\n')
		t.reason(p, nil)
	}
	views := viewOf(x.View)
	for i := range x.Requests {
		t.request(&x.Requests[i], views)
	}
	for i := range x.NotChecked {
		it := &x.NotChecked[i]
		// One line: the reason is what to do.
		fmt.Fprintf(t.b, "\n  %s: %s (%s)\n", plain(it.Request), it.Outcome, plain(it.Reason))
		t.line("asked", "by "+asker(it.From))
		for _, n := range it.Notes {
			t.line("note", n)
		}
	}
	rest := describe(&x.Edits, func(o edits.Origin) bool { return o.Source == edits.View })
	if len(rest) > 0 {
		t.b.WriteString("\n  For the application to find them\n")
		for _, e := range rest {
			t.line(e.kind, e.text)
		}
	}
}

func verdictText(x *explanation) string {
	switch {
	case x.missing:
		return "is not in the pod"
	case x.Verdict == verdictRefused:
		return "would be refused"
	case x.Verdict == verdictIncomplete && x.Edits.Empty():
		return "is not fully checked; what was checked would leave it as it is"
	case x.Verdict == verdictIncomplete:
		return "is not fully checked; what was checked would be created with this"
	case len(x.Requests) == 0:
		return "asks for nothing, and would be left as it is"
	case x.Edits.Empty():
		return "would be created as it is"
	}
	return "would be created with this"
}

func (t *explainText) request(it *resolve.Item, views []viewed) {
	fmt.Fprintf(t.b, "\n  %s: %s\n", plain(it.Request), it.Outcome)
	place, why := trimmed(it, it.Reason)
	if it.File != it.From && it.From != "" {
		t.line("asked", "by "+asker(it.From)+place)
	}
	t.line("file", it.File)
	t.line("rule", it.Rule)
	for i := range views {
		if views[i].request() == it.Request {
			t.view(&views[i])
		}
	}
	for _, e := range describe(&t.x.Edits, func(o edits.Origin) bool { return o.Request == it.Request && o.Source != edits.View }) {
		t.line(e.kind, e.text)
	}
	for _, n := range it.Notes {
		t.line("note", n)
	}
	t.reason(why, it.Err)
	if it.Audit != "" {
		t.line("audit", "granted by mode audit alone; mode enforce would refuse it")
		_, why := trimmed(it, it.Audit)
		t.reason(why, nil)
	}
}

// asker is an annotation, or a door's own input in its own words.
func asker(from string) string {
	if strings.Contains(from, " ") {
		return from
	}
	return "annotation " + from
}

func (t *explainText) line(name, value string) {
	if value != "" {
		fmt.Fprintf(t.b, "    %-7s %s\n", name, plain(value))
	}
}

// reason writes why something is not injected: what is wrong with device-info a
// finding a line, what was looked for and where a line each, and the lines of YAML
// that a refusal ends with by themselves, so that they can be copied. err is the
// error that text is of, where it is known.
func (t *explainText) reason(text string, err error) {
	var (
		bad     deviceinfo.Diagnostics
		missing *cdiregistry.NotFoundError
	)
	switch {
	case errors.As(err, &bad):
		for _, d := range bad {
			d.File = ""
			t.line("why", d.Error())
		}
		return
	case errors.As(err, &missing):
		name := "why"
		for part := range strings.SplitSeq(text, "; ") {
			t.line(name, part)
			name = ""
		}
		return
	}
	why, where, lines := splitRemedy(text)
	t.line("why", why)
	if where == "" {
		return
	}
	t.line("remedy", where)
	for _, l := range lines {
		fmt.Fprintf(t.b, "              %s\n", plain(l))
	}
}

// remedyMark begins the remedy in a refusal, and in the reason why audit mode did not deliver
// what nobody asked for.
var remedyMark = lazy(`; to (?:allow|deliver) it, add `)

// splitRemedy parts the text of a refusal (policy.RefusedError): why, where to
// add lines, and the lines, less the indent they share. Other text is why.
func splitRemedy(text string) (why, where string, lines []string) {
	first, rest, ok := strings.Cut(text, "\n")
	marks := remedyMark().FindAllStringIndex(first, -1)
	if !ok || len(marks) == 0 {
		return text, "", nil
	}
	for l := range strings.SplitSeq(rest, "\n") {
		lines = append(lines, strings.TrimPrefix(l, "  "))
	}
	last := marks[len(marks)-1]
	return first[:last[0]], first[last[0]+len("; "):], lines
}

var (
	fromItem = lazy(`^annotation \S+(, item \d+): `)
	// What a refusal says of the container, which the heading says already.
	toWhom = lazy(`^refuse (.*) to container "(?:[^"\\]|\\.)*" of pod "(?:[^"\\]|\\.)*": `)
)

// trimmed is a text of an item less what the lines around it say: the annotation,
// of which the place in its list is given apart, the container, the request and
// the file.
func trimmed(it *resolve.Item, text string) (place, why string) {
	s := text
	if m := fromItem().FindStringSubmatch(s); m != nil && it.From != "" && strings.HasPrefix(s, "annotation "+it.From+",") {
		place, s = m[1], s[len(m[0]):]
	}
	s = strings.TrimPrefix(toWhom().ReplaceAllString(s, "$1: "), "resolve ")
	for _, known := range []string{it.Request, it.File, it.From} {
		if known != "" {
			s = strings.TrimPrefix(s, known+": ")
		}
	}
	return place, s
}

// viewed is what explain takes from an element of devices.json. A socket always
// belongs to a network.
type viewed struct {
	Name, Interface string
	DeviceInfo      struct {
		Type string
		PCI  struct {
			Address string `json:"pci-address"`
		}
		VDPA      struct{ Path string }
		VhostUser struct{ Path string } `json:"vhost-user"`
		Memif     struct{ Path string }
	} `json:"device-info"`
	Jackfield struct {
		Resource string
		Creator  string `json:"socket-created-by"`
		OwnPath  string `json:"own-path"`
	}
}

func viewOf(data json.RawMessage) []viewed {
	var out []viewed
	if json.Unmarshal(data, &out) != nil {
		return nil
	}
	return out
}

// request is the attachment's request, as pkg/resolve names it.
func (v *viewed) request() string {
	if v.Interface == "" {
		return fmt.Sprintf("network %q", v.Name)
	}
	return fmt.Sprintf("network %q on %s", v.Name, v.Interface)
}

// socket is the socket's path in the container, "" for what has none.
func (v *viewed) socket() string {
	return v.DeviceInfo.VhostUser.Path + v.DeviceInfo.Memif.Path
}

// view tells of a socket where the container finds it and who makes it, which the
// field's dialects see differently.
func (t *explainText) view(v *viewed) {
	socket := v.socket()
	if socket == "" {
		return
	}
	if v.Jackfield.OwnPath != "" && v.Jackfield.OwnPath != socket {
		socket += ", and " + v.Jackfield.OwnPath
	}
	t.line("socket", socket)
	maker := "made by the " + v.Jackfield.Creator
	if d := t.cfg.Dialect(v.Name, v.Jackfield.Resource); d.Use != config.Specification || d.Match != (config.DialectMatch{}) {
		maker += fmt.Sprintf(", in the dialect %q that the configuration gives it", d.Use)
	}
	t.line("", maker)
}

// described is one edit for a person.
type described struct{ kind, text string }

// describe lists the edits whose origin is wanted.
func describe(s *edits.Set, want func(edits.Origin) bool) []described {
	var out []described
	add := func(o edits.Origin, kind, format string, args ...any) {
		if want(o) {
			out = append(out, described{kind, fmt.Sprintf(format, args...)})
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
		args := ""
		if len(h.Args) > 1 {
			args = " " + strings.Join(h.Args[1:], " ")
		}
		add(h.Origin, "hook", "%s %s%s", h.Stage, h.Path, args)
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
	return out
}

// deviceText is a device node: path, type and numbers, access, owner, source.
func deviceText(d *edits.Device) string {
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
