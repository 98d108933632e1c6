// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

// field is a member of an object that gets another value: a list, a value as
// text, or an object of which some members do.
type field struct {
	key    string
	list   []element // not nil for a list
	value  []byte    // not nil for a value
	in     object    // the object, where there is one
	fields []field   // its members
}

// element is one of a list that was there before, by its place, or a new one.
type element struct {
	old  span
	text []byte
}

// patcher writes the text with other values.
type patcher struct {
	text   string
	indent string // of one level; "" for a text in one line
	err    error
}

func (c *Config) patch(ch *changes) ([]byte, error) {
	p := &patcher{text: c.text, indent: indentOf(c.text, c.root)}
	var hooks []field
	for i, stage := range edits.Stages() {
		hooks = append(hooks, listField(p, string(stage), c.stage[i], ch.hooks[i])...)
	}
	fields := slices.Concat(
		objectField("process", c.process, slices.Concat(
			objectField("user", c.user, listField(p, "additionalGids", c.gids, ch.gids)),
			listField(p, "env", c.env, ch.env))),
		listField(p, "mounts", c.mounts, ch.mounts),
		objectField("hooks", c.hooks, hooks),
		objectField("linux", c.linux, slices.Concat(
			listField(p, "devices", c.devices, ch.devices),
			objectField("netDevices", c.netDevices, p.netDevices(ch.netDevices)),
			objectField("resources", c.resources, listField(p, "devices", c.rules, ch.rules)),
			p.rdt(ch.rdt), p.propagation(ch.propagation))))
	if len(fields) == 0 || p.err != nil {
		return []byte(c.text), p.err
	}
	out := make([]byte, 0, len(c.text)+1024)
	out = append(out, c.text[:c.root.start]...)
	out = p.object(out, c.root, fields, 0)
	out = append(out, c.text[c.root.end:]...)
	return out, p.err
}

// objectField is an object of which some members change, if any do.
func objectField(key string, in object, fields []field) []field {
	if len(fields) == 0 {
		return nil
	}
	return []field{{key: key, in: in, fields: fields}}
}

// listField is a list, if it changes.
func listField[T any](p *patcher, key string, a array, l list[T]) []field {
	if !l.set {
		return nil
	}
	same := len(l.from) == len(a.elements)
	for i, from := range l.from {
		same = same && from == i
	}
	if same {
		return nil
	}
	out := make([]element, len(l.items))
	for i, from := range l.from {
		if from == added {
			out[i].text = p.marshal(&l.items[i])
		} else {
			out[i].old = a.elements[from]
		}
	}
	return []field{{key: key, list: out}}
}

func (p *patcher) netDevices(devices []edits.NetDevice) []field {
	var out []field
	for _, n := range devices {
		out = append(out, field{key: n.HostName, value: p.marshal(&rspec.LinuxNetDevice{Name: n.Name})})
	}
	return out
}

func (p *patcher) rdt(rdt *rspec.LinuxIntelRdt) []field {
	if rdt == nil {
		return nil
	}
	return []field{{key: "intelRdt", value: p.marshal(rdt)}}
}

func (p *patcher) propagation(value string) []field {
	if value == "" {
		return nil
	}
	return []field{{key: "rootfsPropagation", value: p.marshal(&value)}}
}

// marshal is a value in one line, as runtimes write it: "<" is no "\u003c".
// v is a pointer to it.
func (p *patcher) marshal(v any) []byte {
	if out, ok := appendPlain(make([]byte, 0, 128), v); ok {
		return out
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil && p.err == nil {
		p.err = err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'})
}

// object appends the object, with the fields in it, which stands at a depth. Its
// own text stays around them; those that it has not come last.
func (p *patcher) object(out []byte, o object, fields []field, depth int) []byte {
	if o.empty() {
		out = append(out, '{')
		out = p.newFields(out, fields, depth, true)
		return append(p.line(out, depth), '}')
	}
	at := o.start
	rest := slices.Clone(fields)
	for _, m := range o.members {
		i := slices.IndexFunc(rest, func(f field) bool { return f.key == m.key })
		if i < 0 {
			continue
		}
		out = append(out, p.text[at:m.value.start]...)
		out = p.value(out, &rest[i], depth+1)
		at = m.value.end
		rest = slices.Delete(rest, i, i+1)
	}
	if len(rest) == 0 {
		return append(out, p.text[at:o.end]...)
	}
	if n := len(o.members); n > 0 {
		if last := o.members[n-1].value.end; at < last {
			out, at = append(out, p.text[at:last]...), last
		}
		out = p.newFields(out, rest, depth, false)
		return append(out, p.text[at:o.end]...)
	}
	out = p.newFields(append(out, '{'), rest, depth, true)
	return append(p.line(out, depth), '}')
}

func (p *patcher) newFields(out []byte, fields []field, depth int, first bool) []byte {
	for i := range fields {
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(p.line(out, depth+1), p.marshal(&fields[i].key)...)
		out = append(out, ':')
		if p.indent != "" {
			out = append(out, ' ')
		}
		out = p.value(out, &fields[i], depth+1)
	}
	return out
}

func (p *patcher) value(out []byte, f *field, depth int) []byte {
	switch {
	case f.value != nil:
		return p.new(out, f.value, depth)
	case f.list == nil:
		return p.object(out, f.in, f.fields, depth)
	}
	out = append(out, '[')
	for i, e := range f.list {
		if i > 0 {
			out = append(out, ',')
		}
		out = p.line(out, depth+1)
		if e.text == nil {
			out = append(out, e.old.of(p.text)...)
		} else {
			out = p.new(out, e.text, depth+1)
		}
	}
	return append(p.line(out, depth), ']')
}

// new appends a new value, in the text's manner.
func (p *patcher) new(out, value []byte, depth int) []byte {
	if p.indent == "" {
		return append(out, value...)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, value, strings.Repeat(p.indent, depth), p.indent); err != nil && p.err == nil {
		p.err = err
	}
	return append(out, b.Bytes()...)
}

// line begins a line at a depth.
func (p *patcher) line(out []byte, depth int) []byte {
	if p.indent == "" {
		return out
	}
	out = append(out, '\n')
	for range depth {
		out = append(out, p.indent...)
	}
	return out
}

// indentOf is by how much the text is indented at each level: what stands before
// the first member on a line of its own.
func indentOf(text string, root object) string {
	const most = 8
	if len(root.members) == 0 {
		return ""
	}
	before := text[root.start+1 : root.members[0].name.start]
	at := strings.LastIndexByte(before, '\n')
	if at < 0 || len(before)-at-1 > most {
		return ""
	}
	return strings.Trim(before[at+1:], "\r")
}
