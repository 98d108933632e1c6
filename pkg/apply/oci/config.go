// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/containerd/errdefs"
	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/pkg/edits"
)

// Config is the text of an OCI config.json. Of its values only those are read that
// edits can reach or depend on; the others need to be JSON, and no more.
type Config struct {
	text string
	spec rspec.Spec
	root object
	// The objects in which something can change, and the lists. One that is not in
	// the text has no place.
	process, user, hooks, linux, resources, netDevices object
	env, gids, mounts, devices, rules                  array
	stage                                              [stages]array
}

// ParseConfig reads a config.json: a JSON object with an ociVersion. The error is
// a *ConfigError.
func ParseConfig(data []byte) (*Config, error) {
	if err := checkSyntax(data); err != nil {
		return nil, err
	}
	text := string(data)
	c := &Config{text: text}
	start := skipSpace(text, 0)
	whole := span{start, skipValue(text, start)}
	if text[start] != '{' {
		return nil, c.fault(whole, "", "an OCI spec is a JSON object")
	}
	r := &reader{c: c}
	c.root = r.object(whole, "", "ociVersion", "process", "root", "annotations", "mounts", "hooks", "linux")
	c.readVersion(r)
	c.readRoot(r)
	c.readProcess(r)
	c.mounts = r.array(c.root, "mounts")
	decode(r, c.mounts, &c.spec.Mounts)
	c.readHooks(r)
	c.readLinux(r)
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// Spec is what was read: ociVersion, the path of root, annotations, the process's
// user and environment, mounts, hooks, and of linux the namespaces, devices,
// network devices, the rules of the device cgroup and its path. Everything else is missing in it. It must not be changed.
func (c *Config) Spec() *rspec.Spec { return &c.spec }

// Apply is the text with the edits made in it, under the rules of the function
// Apply. The receiver does not change. Where nothing changes, it is the same text.
func (c *Config) Apply(set *edits.Set) ([]byte, error) {
	if set == nil || set.Empty() {
		return []byte(c.text), nil
	}
	ch := changes{track: true}
	if err := ch.plan(&c.spec, set); err != nil {
		return nil, fmt.Errorf("edit OCI spec: %w", err)
	}
	return c.patch(&ch)
}

func (c *Config) readVersion(r *reader) {
	v := r.value(c.root, "ociVersion")
	if r.err != nil {
		return
	}
	if v.empty() {
		r.err = c.fault(c.root.span, "ociVersion", "the field is missing: an OCI spec has a version")
		return
	}
	if r.scalar(c.root, "ociVersion", &c.spec.Version); r.err != nil || c.spec.Version == "" {
		r.err = c.fault(v, "ociVersion", "must be a version")
	}
}

// readRoot reads what no edit reaches, and adapters ask for: where the root file
// system is, and the annotations.
func (c *Config) readRoot(r *reader) {
	root := r.objectIn(c.root, "root", "path")
	if !root.empty() {
		c.spec.Root = &rspec.Root{}
		r.scalar(root, "path", &c.spec.Root.Path)
	}
	annotations := r.objectIn(c.root, "annotations")
	for _, m := range annotations.members {
		if c.spec.Annotations == nil {
			c.spec.Annotations = make(map[string]string, len(annotations.members))
		}
		value, ok := plainString(m.value.of(c.text))
		if !ok {
			r.into(m.value, annotations.name+"."+m.key, &value)
		}
		c.spec.Annotations[m.key] = value
	}
}

func (c *Config) readProcess(r *reader) {
	c.process = r.objectIn(c.root, "process", "user", "env")
	c.user = r.objectIn(c.process, "user", "uid", "gid", "additionalGids")
	c.env = r.array(c.process, "env")
	c.gids = r.array(c.user, "additionalGids")
	if c.process.empty() {
		return
	}
	c.spec.Process = &rspec.Process{}
	decode(r, c.env, &c.spec.Process.Env)
	u := &c.spec.Process.User
	decode(r, c.gids, &u.AdditionalGids)
	r.scalar(c.user, "uid", &u.UID)
	r.scalar(c.user, "gid", &u.GID)
}

func (c *Config) readHooks(r *reader) {
	var names []string
	for _, s := range edits.Stages() {
		names = append(names, string(s))
	}
	c.hooks = r.objectIn(c.root, "hooks", names...)
	if c.hooks.empty() {
		return
	}
	c.spec.Hooks = &rspec.Hooks{}
	for i, name := range names {
		c.stage[i] = r.array(c.hooks, name)
		decode(r, c.stage[i], stageField(c.spec.Hooks, i))
	}
}

func (c *Config) readLinux(r *reader) {
	c.linux = r.objectIn(c.root, "linux", "namespaces", "devices", "resources", "netDevices", "intelRdt", "cgroupsPath",
		"uidMappings", "gidMappings", "rootfsPropagation")
	if c.linux.empty() {
		return
	}
	l := &rspec.Linux{}
	c.spec.Linux = l
	decode(r, r.array(c.linux, "namespaces"), &l.Namespaces)
	r.scalar(c.linux, "cgroupsPath", &l.CgroupsPath)
	r.scalar(c.linux, "rootfsPropagation", &l.RootfsPropagation)
	decode(r, r.array(c.linux, "uidMappings"), &l.UIDMappings)
	decode(r, r.array(c.linux, "gidMappings"), &l.GIDMappings)
	c.devices = r.array(c.linux, "devices")
	decode(r, c.devices, &l.Devices)
	c.resources = r.objectIn(c.linux, "resources", "devices")
	c.rules = r.array(c.resources, "devices")
	if !c.resources.empty() {
		l.Resources = &rspec.LinuxResources{}
		decode(r, c.rules, &l.Resources.Devices)
	}
	c.netDevices = r.objectIn(c.linux, "netDevices")
	for _, m := range c.netDevices.members {
		var d rspec.LinuxNetDevice
		r.into(m.value, c.netDevices.name+"."+m.key, &d)
		if l.NetDevices == nil {
			l.NetDevices = make(map[string]rspec.LinuxNetDevice, len(c.netDevices.members))
		}
		l.NetDevices[m.key] = d
	}
}

// reader reads parts of a config until the first error.
type reader struct {
	c   *Config
	err error
}

// object is the object at a place. The names are those that are looked for in it:
// each may stand there once and in no other case, since a runtime could take the
// other for it.
func (r *reader) object(at span, name string, names ...string) object {
	if r.err != nil {
		return object{}
	}
	if r.c.text[at.start] != '{' {
		r.err = r.c.fault(at, name, "must be an object")
		return object{}
	}
	o := object{span: at, name: name, members: members(r.c.text, at)}
	seen := make(map[string]struct{}, len(names))
	for _, m := range o.members {
		field := join(name, m.key)
		known := len(names) == 0 // its keys are names of something
		for _, n := range names {
			if m.key != n && strings.EqualFold(m.key, n) {
				r.err = r.c.fault(m.name, field, fmt.Sprintf("must be spelled %q: some runtimes would take it for that", n))
				return object{}
			}
			known = known || m.key == n
		}
		if _, twice := seen[m.key]; twice {
			r.err = r.c.fault(m.name, field, "must not be there twice")
			return object{}
		}
		if known {
			seen[m.key] = struct{}{}
		}
	}
	return o
}

// objectIn is the object of a name in another; null is as good as none.
func (r *reader) objectIn(in object, name string, names ...string) object {
	at := r.value(in, name)
	if at.empty() {
		return object{name: join(in.name, name)}
	}
	return r.object(at, join(in.name, name), names...)
}

// array is the list of a name in an object.
func (r *reader) array(in object, name string) array {
	a := array{name: join(in.name, name)}
	at := r.value(in, name)
	if at.empty() {
		return a
	}
	if r.c.text[at.start] != '[' {
		r.err = r.c.fault(at, a.name, "must be a list")
		return a
	}
	a.span, a.elements = at, elements(r.c.text, at)
	return a
}

// value is the place of a value that is not null.
func (r *reader) value(in object, name string) span {
	if r.err != nil {
		return span{}
	}
	for _, m := range in.members {
		if m.key == name && r.c.text[m.value.start] != 'n' {
			return m.value
		}
	}
	return span{}
}

func (r *reader) scalar(in object, name string, into any) {
	if at := r.value(in, name); !at.empty() && !readPlain(r.c.text, at, into) {
		r.into(at, join(in.name, name), into)
	}
}

func (r *reader) into(at span, field string, into any) {
	if r.err != nil {
		return
	}
	err := json.Unmarshal([]byte(at.of(r.c.text)), into)
	if err == nil {
		return
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		if wrong.Field != "" {
			field += "." + wrong.Field
		}
		e := r.c.fault(at, field, "must be "+jsonType(wrong.Type))
		e.Found = wrong.Value
		r.err = e
		return
	}
	r.err = r.c.fault(at, field, err.Error())
}

// jsonType is what a value of a type is in JSON.
func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return "a whole number of type " + t.Kind().String()
}

// decode reads each element of a list.
func decode[T any](r *reader, a array, into *[]T) {
	if len(a.elements) == 0 || r.err != nil {
		return
	}
	*into = make([]T, len(a.elements))
	for i, at := range a.elements {
		item := &(*into)[i]
		if readPlain(r.c.text, at, item) {
			continue
		}
		*item = *new(T)
		r.into(at, a.name+"["+strconv.Itoa(i)+"]", item)
	}
}

func join(name, key string) string {
	if name == "" {
		return key
	}
	return name + "." + key
}

// ConfigError is why a text is no OCI spec that can be edited. It unwraps to
// errdefs.ErrInvalidArgument.
type ConfigError struct {
	Line, Column int    // from 1, Column in characters
	Field        string // such as "linux.devices[2].major"; "" for the whole
	Found        string // as in the text, shortened; "" where that would say nothing
	Rule         string // what is asked for
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "line %d, column %d: ", e.Line, e.Column)
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	if e.Found != "" {
		b.WriteString("found " + e.Found + ": ")
	}
	b.WriteString(e.Rule)
	return b.String()
}

// Unwrap makes the error an errdefs.ErrInvalidArgument.
func (e *ConfigError) Unwrap() error { return errdefs.ErrInvalidArgument }

func (c *Config) fault(at span, field, rule string) *ConfigError {
	e := &ConfigError{Field: field, Rule: rule}
	e.Line, e.Column = position(c.text, at.start)
	if found := at.of(c.text); found[0] != '{' && found[0] != '[' || field == "" {
		e.Found = shorten(found)
	}
	return e
}

func checkSyntax(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	// A RawMessage is checked as a whole, and not looked into.
	err := json.Unmarshal(text, new(json.RawMessage))
	e := &ConfigError{Rule: fmt.Sprintf("is not JSON: %v", err)}
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		e.Line, e.Column = position(string(text), max(int(syntax.Offset)-1, 0))
	} else {
		e.Line, e.Column = 1, 1
	}
	return e
}

func position(text string, offset int) (line, column int) {
	before := text[:min(offset, len(text))]
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1
}

func shorten(text string) string {
	const most = 40
	s := strings.Join(strings.Fields(text[:min(len(text), 4*most)]), " ")
	if len(s) <= most {
		return s
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}
