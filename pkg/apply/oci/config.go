// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/jsontree"
	"github.com/jackfield/jackfield/pkg/edits"
)

// Config is an OCI config.json. Only the values that edits change or depend on are decoded. All
// others only need to be JSON.
type Config struct {
	text string
	root *jsontree.Node
	spec rspec.Spec

	env     []element[string]
	gids    []element[uint32]
	mounts  []element[rspec.Mount]
	hooks   map[edits.Stage][]element[rspec.Hook]
	devices []element[rspec.LinuxDevice]
	rules   []element[rspec.LinuxDeviceCgroup]
}

// element is one element of a list: its value, and its text in config.json. A new element has no
// text.
type element[T any] struct {
	value T
	text  string
}

// ParseConfig parses a config.json: a JSON object with an ociVersion. file names it in the error,
// which is a *diag.Diagnostic.
func ParseConfig(file string, data []byte) (*Config, error) {
	c := &Config{text: string(data)}
	r := &reader{file: file, text: c.text}
	if c.root, r.err = jsontree.Parse(c.text); r.err == nil {
		c.readSpec(r)
	}
	if r.err != nil {
		r.err.File = file
		return nil, r.err
	}
	return c, nil
}

// Spec returns the decoded part of the configuration: ociVersion, root.path, annotations, the user
// and environment of the process, mounts, hooks, and of linux the namespaces, ID mappings, devices,
// network devices, device cgroup rules, cgroupsPath and rootfsPropagation. It must not be changed.
func (c *Config) Spec() *rspec.Spec { return &c.spec }

// Existing returns what a container with this configuration has, for the resolution of edits that
// are to be applied to it.
func Existing(spec *rspec.Spec) edits.Existing {
	have := edits.Existing{CDIReplaces: true}
	if spec.Process != nil {
		have.Env = spec.Process.Env
	}
	for i := range spec.Mounts {
		have.Mounts = append(have.Mounts, edits.Mount{Destination: spec.Mounts[i].Destination, Source: spec.Mounts[i].Source})
	}
	if spec.Linux != nil {
		for i := range spec.Linux.Devices {
			d := &spec.Linux.Devices[i]
			have.Devices = append(have.Devices, edits.Device{Path: d.Path, Type: d.Type, Major: d.Major, Minor: d.Minor, FileMode: d.FileMode, UID: d.UID, GID: d.GID})
		}
	}
	if spec.Hooks != nil {
		for _, stage := range edits.Stages() {
			for _, h := range *hooksOfStage(spec.Hooks, stage) {
				have.Hooks = append(have.Hooks, edits.Hook{Stage: stage, Path: h.Path, Args: h.Args, Env: h.Env, Timeout: h.Timeout})
			}
		}
	}
	return have
}

// hooksOfStage returns the list of one stage, nil for an unknown stage.
func hooksOfStage(h *rspec.Hooks, stage edits.Stage) *[]rspec.Hook {
	switch stage {
	case edits.Prestart:
		//lint:ignore SA1019 CDI names the stage, and runtimes run it.
		return &h.Prestart
	case edits.CreateRuntime:
		return &h.CreateRuntime
	case edits.CreateContainer:
		return &h.CreateContainer
	case edits.StartContainer:
		return &h.StartContainer
	case edits.Poststart:
		return &h.Poststart
	case edits.Poststop:
		return &h.Poststop
	}
	return nil
}

func (c *Config) readSpec(r *reader) {
	if c.root.Kind != jsontree.Object {
		r.addFault(c.root, "", "an OCI configuration must be a JSON object")
		return
	}
	r.checkKeys(c.root, "", "ociVersion", "process", "root", "annotations", "mounts", "hooks", "linux")
	r.decode(c.root, "", "ociVersion", &c.spec.Version)
	if c.spec.Version == "" {
		at := r.member(c.root, "ociVersion")
		if at == nil {
			at = c.root
		}
		r.addFault(at, "ociVersion", "a version is required")
	}
	if root := r.object(c.root, "root", "path"); root != nil {
		c.spec.Root = &rspec.Root{}
		r.decode(root, "root", "path", &c.spec.Root.Path)
	}
	c.spec.Annotations = decodeMap[string](r, c.root, "annotations")
	if process := r.object(c.root, "process", "user", "env"); process != nil {
		c.spec.Process = &rspec.Process{}
		c.env = decodeList(r, process, "process.env", &c.spec.Process.Env)
		user := r.object(process, "process.user", "uid", "gid", "additionalGids")
		u := &c.spec.Process.User
		c.gids = decodeList(r, user, "process.user.additionalGids", &u.AdditionalGids)
		r.decode(user, "process.user", "uid", &u.UID)
		r.decode(user, "process.user", "gid", &u.GID)
	}
	c.mounts = decodeList(r, c.root, "mounts", &c.spec.Mounts)
	c.readHooks(r)
	c.readLinux(r)
}

func (c *Config) readHooks(r *reader) {
	var stages []string
	for _, s := range edits.Stages() {
		stages = append(stages, string(s))
	}
	hooks := r.object(c.root, "hooks", stages...)
	if hooks == nil {
		return
	}
	c.spec.Hooks = &rspec.Hooks{}
	c.hooks = make(map[edits.Stage][]element[rspec.Hook])
	for _, s := range edits.Stages() {
		c.hooks[s] = decodeList(r, hooks, "hooks."+string(s), hooksOfStage(c.spec.Hooks, s))
	}
}

func (c *Config) readLinux(r *reader) {
	linux := r.object(c.root, "linux", "namespaces", "devices", "resources", "netDevices", "intelRdt", "cgroupsPath",
		"uidMappings", "gidMappings", "rootfsPropagation")
	if linux == nil {
		return
	}
	l := &rspec.Linux{}
	c.spec.Linux = l
	decodeList(r, linux, "linux.namespaces", &l.Namespaces)
	r.decode(linux, "linux", "cgroupsPath", &l.CgroupsPath)
	r.decode(linux, "linux", "rootfsPropagation", &l.RootfsPropagation)
	decodeList(r, linux, "linux.uidMappings", &l.UIDMappings)
	decodeList(r, linux, "linux.gidMappings", &l.GIDMappings)
	c.devices = decodeList(r, linux, "linux.devices", &l.Devices)
	if resources := r.object(linux, "linux.resources", "devices"); resources != nil {
		l.Resources = &rspec.LinuxResources{}
		c.rules = decodeList(r, resources, "linux.resources.devices", &l.Resources.Devices)
	}
	l.NetDevices = decodeMap[rspec.LinuxNetDevice](r, linux, "linux.netDevices")
}

// reader decodes parts of a config.json up to the first error.
type reader struct {
	file, text string
	err        *diag.Diagnostic
}

func (r *reader) addFault(at *jsontree.Node, field, rule string) {
	if r.err != nil {
		return
	}
	r.err = &diag.Diagnostic{Line: at.Line, Column: at.Column, Field: field, Rule: rule}
	if at.Kind != jsontree.Object && at.Kind != jsontree.Array || field == "" {
		r.err.Found = diag.Excerpt(r.text[at.Start:at.End], 40)
	}
}

// failKey reports the key of a member.
func (r *reader) failKey(member *jsontree.Node, parent, rule string) {
	if r.err == nil {
		r.err = &diag.Diagnostic{Line: member.KeyLine, Column: member.KeyColumn, Field: joinField(parent, member.Key), Rule: rule}
	}
}

// member returns a member of an object, nil if it is missing or null. path is dotted, and ends in
// the member's key.
func (r *reader) member(parent *jsontree.Node, path string) *jsontree.Node {
	if n := parent.Member(path[strings.LastIndexByte(path, '.')+1:]); r.err == nil && n != nil && n.Kind != jsontree.Null {
		return n
	}
	return nil
}

// object returns a member that is an object, nil if it is missing or null. keys are the keys that
// the caller uses; without keys, all are.
func (r *reader) object(parent *jsontree.Node, path string, keys ...string) *jsontree.Node {
	n := r.member(parent, path)
	if n == nil {
		return nil
	}
	if n.Kind != jsontree.Object {
		r.addFault(n, path, "must be an object")
		return nil
	}
	r.checkKeys(n, path, keys...)
	return n
}

// checkKeys refuses duplicates of the keys, and other spellings of them: runtimes written in Go
// ignore case.
func (r *reader) checkKeys(n *jsontree.Node, path string, keys ...string) {
	seen := make(map[string]bool, len(keys))
	for _, m := range n.Children {
		for _, key := range keys {
			if m.Key != key && strings.EqualFold(m.Key, key) {
				r.failKey(m, path, fmt.Sprintf("must be spelled %q: some runtimes ignore case", key))
			}
		}
		if seen[m.Key] {
			r.failKey(m, path, "must not occur twice")
		}
		seen[m.Key] = len(keys) == 0 || slices.Contains(keys, m.Key)
	}
}

// decode decodes a member, if it is there.
func (r *reader) decode(parent *jsontree.Node, path, key string, into any) {
	path = joinField(path, key)
	if n := r.member(parent, path); n != nil {
		r.unmarshal(n, path, into)
	}
}

func (r *reader) unmarshal(n *jsontree.Node, field string, into any) {
	err := json.Unmarshal([]byte(r.text[n.Start:n.End]), into)
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
	case errors.As(err, &wrong):
		r.addFault(n, joinField(field, wrong.Field), "must be "+jsonTypeName(wrong.Type))
		r.err.Found = "a JSON " + wrong.Value
	default:
		r.addFault(n, field, err.Error())
	}
}

// decodeList decodes the elements of a list, both as elements and as values of the spec.
func decodeList[T any](r *reader, parent *jsontree.Node, path string, values *[]T) []element[T] {
	n := r.member(parent, path)
	if n == nil {
		return nil
	}
	if n.Kind != jsontree.Array {
		r.addFault(n, path, "must be a list")
		return nil
	}
	out := make([]element[T], len(n.Children))
	for i, child := range n.Children {
		r.unmarshal(child, path+"["+strconv.Itoa(i)+"]", &out[i].value)
		out[i].text = r.text[child.Start:child.End]
		*values = append(*values, out[i].value)
	}
	return out
}

// decodeMap decodes an object of which all keys are used.
func decodeMap[T any](r *reader, parent *jsontree.Node, path string) map[string]T {
	n := r.object(parent, path)
	if n == nil {
		return nil
	}
	out := make(map[string]T, len(n.Children))
	for _, child := range n.Children {
		var value T
		r.unmarshal(child, joinField(path, child.Key), &value)
		out[child.Key] = value
	}
	return out
}

// jsonTypeName names the JSON type that decodes to a Go type.
func jsonTypeName(t reflect.Type) string {
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

func joinField(path, key string) string {
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}
