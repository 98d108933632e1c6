// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"

	"go.yaml.in/yaml/v3"
)

func (d *decoder) rules(into *[]Rule) reader {
	return func(field string, node *yaml.Node) {
		if none(node) {
			return
		}
		d.list(field, node, func(at string, element *yaml.Node) {
			var r Rule
			before := len(d.faults)
			d.object(at, element,
				member{"name", d.text(&r.Name, notEmpty)},
				member{"for", d.section(
					member{"namespaces", d.texts(&r.For.Namespaces, anyText)},
					member{"podLabels", d.labels(&r.For.PodLabels)},
					member{"runtimeClasses", d.texts(&r.For.RuntimeClasses, anyText)},
					member{"images", d.texts(&r.For.Images, notEmpty)},
				)},
				member{"mode", enum(d, &r.Mode, Enforce, Audit)},
				member{"allow", d.allow(&r.Allow)},
				member{"deny", d.allow(&r.Deny)},
				member{"limits", d.section(
					member{"container", d.limit(&r.Limits.Container)},
					member{"pod", d.limit(&r.Limits.Pod)},
				)},
			)
			if len(d.faults) == before {
				d.complete(at, element)
			}
			*into = append(*into, r)
		})
	}
}

// complete sees to it that a rule says who and what.
func (d *decoder) complete(at string, rule *yaml.Node) {
	for _, key := range []string{"name", "for"} {
		if _, ok := d.positions[join2(at, key)]; !ok {
			d.fault(join2(at, key), rule, "nothing", "a rule has name, for, and allow, deny or limits")
		}
	}
	for _, key := range []string{"allow", "deny", "limits"} {
		if _, ok := d.positions[join2(at, key)]; ok {
			return
		}
	}
	d.fault(join2(at, "allow"), rule, "nothing", "a rule has name, for, and allow, deny or limits")
}

func (d *decoder) allow(into *Allow) reader {
	return d.section(
		member{"cdi", d.texts(&into.CDI, notEmpty)},
		member{"sockets", d.texts(&into.Sockets, notEmpty)},
		member{"devices", d.texts(&into.Devices, notEmpty)},
		member{"mounts", d.mountRules(&into.Mounts)},
		member{"hooks", d.texts(&into.Hooks, notEmpty)},
		member{"networks", d.texts(&into.Networks, notEmpty)},
	)
}

func (d *decoder) mountRules(into *[]MountRule) reader {
	return func(field string, node *yaml.Node) {
		d.list(field, node, func(at string, element *yaml.Node) {
			var m MountRule
			before := len(d.faults)
			d.object(at, element,
				member{"source", d.text(&m.Source, notEmpty)},
				member{"destination", d.text(&m.Destination, notEmpty)},
				member{"readOnly", d.truth(&m.ReadOnly)},
			)
			if m.Source == "" && len(d.faults) == before {
				d.fault(at+".source", element, "nothing", "a mount has a source, a pattern of host paths")
			}
			*into = append(*into, m)
		})
	}
}

func (d *decoder) limit(into *Limit) reader {
	return d.section(
		member{"cdi", d.number(&into.CDI)},
		member{"devices", d.number(&into.Devices)},
		member{"sockets", d.number(&into.Sockets)},
		member{"mounts", d.number(&into.Mounts)},
		member{"hooks", d.number(&into.Hooks)},
	)
}

// number reads a whole number from 1 on. Nothing at all is not a limit: what is
// to be refused altogether is left out of allow, or denied.
func (d *decoder) number(into *int) reader {
	return func(field string, node *yaml.Node) {
		n, err := strconv.Atoi(node.Value)
		if node.Kind != yaml.ScalarNode || node.Tag != "!!int" || err != nil || n < 1 || n > 1<<20 {
			d.fault(field, node, found(node), "want a whole number from 1 to 1048576; what is never to be had is denied")
			return
		}
		*into = n
	}
}

func (d *decoder) labels(into *map[string]string) reader {
	return func(field string, node *yaml.Node) {
		labels := make(map[string]string)
		d.pairs(field, node, func(key, value *yaml.Node) {
			at := join2(field, key.Value)
			d.mark(at, value)
			if s, ok := d.str(at, value, anyText); ok {
				labels[key.Value] = s
			}
		})
		if node.Kind == yaml.MappingNode && len(node.Content) == 0 {
			d.fault(field, node, "an empty object", "give at least one, or leave the key out")
		}
		*into = labels
	}
}
