// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/quantity"
	"github.com/jackfield/jackfield/internal/base/schema"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// CompilePolicy compiles the policy. Its faults have their lines in the configuration. source is
// the configuration's name in messages; "" is its file.
func (c *Config) CompilePolicy(source string) (*policy.Policy, error) {
	source = cmp.Or(source, c.file, DefaultPath)
	p, err := policy.New(source, c.Policy.Mode, c.Policy.Rules)
	for _, fault := range diag.All(source, err) {
		fault.Line, fault.Column = c.LineColumn(fault.Field)
	}
	return p, err
}

func (d decoder) readRule(at string, element *jsontree.Node, r *policy.Rule) {
	ok := d.ReadObject(at, element,
		schema.Key("name", d.Text(&r.Name, notEmpty)),
		schema.Key("for", d.Section(
			schema.Key("namespaces", d.Texts(&r.For.Namespaces, anyText)),
			schema.Key("podLabels", d.readLabels(&r.For.PodLabels)),
			schema.Key("runtimeClasses", d.Texts(&r.For.RuntimeClasses, anyText)),
			schema.Key("images", d.Texts(&r.For.Images, notEmpty)),
		)),
		schema.Key("mode", schema.Enum(d.Decoder, &r.Mode, policy.Enforce, policy.Audit)),
		schema.Key("allow", d.readAllow(&r.Allow)),
		schema.Key("deny", d.readAllow(&r.Deny)),
		schema.Key("limits", d.Section(
			schema.Key("container", d.Section(d.limitMembers(&r.Limits.Container)...)),
			schema.Key("pod", d.Section(append(d.limitMembers(&r.Limits.Pod),
				schema.Key("ports", d.readLimit(&r.Limits.Pod.Ports)))...)),
			schema.Key("memlock", d.readMemory(&r.Limits.Memlock)),
		)),
	)
	if ok {
		d.checkComplete(at, element)
	}
}

// checkComplete rejects a rule without subjects or without effect.
func (d decoder) checkComplete(at string, rule *jsontree.Node) {
	requireOne := func(keys ...string) {
		if !slices.ContainsFunc(keys, func(key string) bool { return d.Fields[jsontree.JoinPath(at, key)] != nil }) {
			d.AddFault(jsontree.JoinPath(at, keys[0]), rule, "nothing", "a rule has name, for, and allow, deny or limits")
		}
	}
	requireOne("name")
	requireOne("for")
	requireOne("allow", "deny", "limits")
}

func (d decoder) readAllow(into *policy.Allow) schema.Reader {
	return d.Section(
		schema.Key("cdi", d.Texts(&into.CDI, notEmpty)),
		schema.Key("sockets", d.Texts(&into.Sockets, notEmpty)),
		schema.Key("devices", d.Texts(&into.Devices, notEmpty)),
		schema.Key("mounts", schema.Items(d.Decoder, &into.Mounts, d.readMountRule)),
		schema.Key("hooks", d.Texts(&into.Hooks, notEmpty)),
		schema.Key("networks", d.Texts(&into.Networks, notEmpty)),
		schema.Key("ports", schema.Items(d.Decoder, &into.Ports, d.readPortRule)),
		schema.Key("namedSockets", d.Texts(&into.NamedSockets, notEmpty)),
	)
}

func (d decoder) readMountRule(at string, element *jsontree.Node, m *policy.Mount) {
	ok := d.ReadObject(at, element,
		schema.Key("type", d.Text(&m.Type, notEmpty)),
		schema.Key("source", d.Text(&m.Source, notEmpty)),
		schema.Key("destination", d.Text(&m.Destination, notEmpty)),
		schema.Key("readOnly", d.Boolean(&m.ReadOnly)),
	)
	if m.Source == "" && m.Type == "" && ok {
		d.AddFault(at+".source", element, "nothing",
			"a mount has a source, a pattern of host paths, or a type of file systems")
	}
}

// limitMembers returns the keys that the limits of containers and of pods share.
func (d decoder) limitMembers(into *policy.Limit) []schema.Member {
	return []schema.Member{
		schema.Key("cdi", d.readLimit(&into.CDI)), schema.Key("devices", d.readLimit(&into.Devices)),
		schema.Key("sockets", d.readLimit(&into.Sockets)),
		schema.Key("mounts", d.readLimit(&into.Mounts)), schema.Key("hooks", d.readLimit(&into.Hooks)),
	}
}

func (d decoder) readLimit(into *int) schema.Reader {
	return d.Number(into, 1, policy.MaxLimit, "; to allow none, use deny")
}

// readMemory decodes an amount of memory. A number of bytes needs no quotes.
func (d decoder) readMemory(into *quantity.Memory) schema.Reader {
	return func(field string, node *jsontree.Node) {
		m, ok := quantity.ParseMemory(node.Text)
		if !ok || node.Kind != jsontree.String && node.Kind != jsontree.Number {
			d.AddFault(field, node, schema.Describe(node), quantity.MemoryRule)
			return
		}
		*into = m
	}
}

func (d decoder) readLabels(into *map[string]string) schema.Reader {
	return func(field string, node *jsontree.Node) {
		if node.Kind == jsontree.Object && len(node.Children) == 0 {
			d.AddFault(field, node, "an empty object", "give at least one, or leave the key out")
		}
		d.TextMap(into, anyText, anyText)(field, node)
	}
}
