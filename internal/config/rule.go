// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/jackfield/jackfield/internal/base/diag"
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

func (d *decoder) readRule(at string, element *yaml.Node, r *policy.Rule) {
	ok := d.readObject(at, element,
		member{"name", d.readText(&r.Name, notEmpty)},
		member{"for", d.readSection(
			member{"namespaces", d.readTexts(&r.For.Namespaces, anyText)},
			member{"podLabels", d.readLabels(&r.For.PodLabels)},
			member{"runtimeClasses", d.readTexts(&r.For.RuntimeClasses, anyText)},
			member{"images", d.readTexts(&r.For.Images, notEmpty)},
		)},
		member{"mode", readEnum(d, &r.Mode, policy.Enforce, policy.Audit)},
		member{"allow", d.readAllow(&r.Allow)},
		member{"deny", d.readAllow(&r.Deny)},
		member{"limits", d.readSection(
			member{"container", d.readSection(d.limitMembers(&r.Limits.Container)...)},
			member{"pod", d.readSection(append(d.limitMembers(&r.Limits.Pod),
				member{"ports", d.readLimit(&r.Limits.Pod.Ports)})...)},
		)},
	)
	if ok {
		d.checkComplete(at, element)
	}
}

// checkComplete rejects a rule without subjects or without effect.
func (d *decoder) checkComplete(at string, rule *yaml.Node) {
	requireOne := func(keys ...string) {
		if !slices.ContainsFunc(keys, func(key string) bool { return d.fields[joinPath(at, key)] != nil }) {
			d.addFault(joinPath(at, keys[0]), rule, "nothing", "a rule has name, for, and allow, deny or limits")
		}
	}
	requireOne("name")
	requireOne("for")
	requireOne("allow", "deny", "limits")
}

func (d *decoder) readAllow(into *policy.Allow) reader {
	return d.readSection(
		member{"cdi", d.readTexts(&into.CDI, notEmpty)},
		member{"sockets", d.readTexts(&into.Sockets, notEmpty)},
		member{"devices", d.readTexts(&into.Devices, notEmpty)},
		member{"mounts", readItems(d, &into.Mounts, d.readMountRule)},
		member{"hooks", d.readTexts(&into.Hooks, notEmpty)},
		member{"networks", d.readTexts(&into.Networks, notEmpty)},
		member{"ports", readItems(d, &into.Ports, d.readPortRule)},
		member{"namedSockets", d.readTexts(&into.NamedSockets, notEmpty)},
	)
}

func (d *decoder) readMountRule(at string, element *yaml.Node, m *policy.Mount) {
	ok := d.readObject(at, element,
		member{"type", d.readText(&m.Type, notEmpty)},
		member{"source", d.readText(&m.Source, notEmpty)},
		member{"destination", d.readText(&m.Destination, notEmpty)},
		member{"readOnly", d.readBoolean(&m.ReadOnly)},
	)
	if m.Source == "" && m.Type == "" && ok {
		d.addFault(at+".source", element, "nothing",
			"a mount has a source, a pattern of host paths, or a type of file systems")
	}
}

// limitMembers returns the keys that the limits of containers and of pods share.
func (d *decoder) limitMembers(into *policy.Limit) []member {
	return []member{
		{"cdi", d.readLimit(&into.CDI)}, {"devices", d.readLimit(&into.Devices)},
		{"sockets", d.readLimit(&into.Sockets)},
		{"mounts", d.readLimit(&into.Mounts)}, {"hooks", d.readLimit(&into.Hooks)},
	}
}

func (d *decoder) readLimit(into *int) reader {
	return d.readNumber(into, 1, policy.MaxLimit, "; to allow none, use deny")
}

// readNumber decodes a whole number. hint is appended to the rule for an invalid value.
func (d *decoder) readNumber(into *int, least, most int, hint string) reader {
	return func(field string, node *yaml.Node) {
		n, err := strconv.Atoi(node.Value)
		if node.Kind != yaml.ScalarNode || node.Tag != "!!int" || err != nil || n < least || n > most {
			d.addFault(field, node, describe(node),
				fmt.Sprintf("must be a whole number from %d to %d%s", least, most, hint))
			return
		}
		*into = n
	}
}

func (d *decoder) readLabels(into *map[string]string) reader {
	return func(field string, node *yaml.Node) {
		if node.Kind == yaml.MappingNode && len(node.Content) == 0 {
			d.addFault(field, node, "an empty object", "give at least one, or leave the key out")
		}
		d.readTextMap(into, anyText, anyText)(field, node)
	}
}
