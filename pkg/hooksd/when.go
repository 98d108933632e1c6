// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	hooks "go.podman.io/common/pkg/hooks/1.0.0"

	"github.com/jackfield/jackfield/pkg/hooksd/ocihook"
)

// Hook is one hooks.d file. It is not to be altered.
type Hook = ocihook.Hook

// Container is what the conditions look at.
type Container = ocihook.Container

// compile returns the conditions and a problem for each expression that is none.
func compile(w *hooks.When, old bool) (ocihook.When, []*Problem) {
	c := ocihook.When{Or: old, Always: w.Always, HasBindMounts: w.HasBindMounts}
	var problems []*Problem
	expression := func(field, text string) *regexp.Regexp {
		re, err := regexp.Compile(text)
		if err != nil {
			problems = append(problems, &Problem{Field: field, Found: quote(text), Rule: "not a regular expression: " + err.Error()})
		}
		return re
	}
	for _, key := range slices.Sorted(maps.Keys(w.Annotations)) {
		field := "when.annotations[" + quote(key) + "]"
		if old {
			field = "annotations"
		}
		c.Annotations = append(c.Annotations, ocihook.Annotation{Key: expression(field, key), Value: expression(field, w.Annotations[key])})
	}
	for i, text := range w.Commands {
		field := "when.commands"
		if old {
			field = "cmds"
		}
		c.Commands = append(c.Commands, expression(index(field, i), text))
	}
	return c, problems
}

// index is a field's element.
func index(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
