// SPDX-License-Identifier: Apache-2.0

package hooksd

import (
	"maps"
	"regexp"
	"slices"

	hooks "go.podman.io/common/pkg/hooks/1.0.0"
)

// Container is what the conditions look at.
type Container struct {
	// Args is the process with its arguments, process.args of the OCI
	// configuration.
	Args []string
	// Annotations are the container's, with the pod's over them.
	Annotations map[string]string
	// HasBindMounts says that whoever asked for the container asked for a bind
	// mount from the host. What a runtime mounts by itself is none.
	HasBindMounts bool
}

// when is the compiled conditions of a file. They are ANDed; those of the old
// schema 0.1.0 are ORed.
type when struct {
	or                    bool
	always, hasBindMounts *bool
	annotations           []annotation
	commands              []*regexp.Regexp
}

// annotation is one pair of unanchored expressions: one annotation must match
// both.
type annotation struct{ key, value *regexp.Regexp }

// compile returns the conditions and a problem for each expression that is none.
func compile(w *hooks.When, old bool) (when, []*Problem) {
	c := when{or: old, always: w.Always, hasBindMounts: w.HasBindMounts}
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
		c.annotations = append(c.annotations, annotation{expression(field, key), expression(field, w.Annotations[key])})
	}
	for i, text := range w.Commands {
		field := "when.commands"
		if old {
			field = "cmds"
		}
		c.commands = append(c.commands, expression(index(field, i), text))
	}
	return c, problems
}

// match is When.Match of the real parser on compiled expressions. The one
// difference: a container without arguments is no error, and no command matches
// it.
func (w *when) match(c *Container) bool {
	matched := false
	for _, condition := range []struct{ there, met bool }{
		{w.always != nil, w.always != nil && *w.always},
		{w.hasBindMounts != nil, w.hasBindMounts != nil && *w.hasBindMounts && c.HasBindMounts},
	} {
		switch {
		case condition.met && w.or:
			return true
		case condition.met:
			matched = true
		case condition.there && !w.or:
			return false
		}
	}
	for i := range w.annotations {
		switch met := w.annotations[i].match(c.Annotations); {
		case met && w.or:
			return true
		case met:
			matched = true
		case !w.or:
			return false
		}
	}
	if len(w.commands) == 0 {
		return matched
	}
	if len(c.Args) == 0 {
		return false
	}
	for _, re := range w.commands {
		if re.MatchString(c.Args[0]) {
			return true
		}
	}
	return false
}

func (a *annotation) match(annotations map[string]string) bool {
	for key, value := range annotations {
		if a.key.MatchString(key) && a.value.MatchString(value) {
			return true
		}
	}
	return false
}
