// SPDX-License-Identifier: Apache-2.0

package ocihook

import "regexp"

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

// When is the compiled conditions of a file. They are ANDed; those of the old
// schema 0.1.0 are ORed.
type When struct {
	Or                    bool
	Always, HasBindMounts *bool
	Annotations           []Annotation
	Commands              []*regexp.Regexp
}

// Annotation is one pair of unanchored expressions: one annotation must match
// both.
type Annotation struct{ Key, Value *regexp.Regexp }

// match is When.Match of the parser of Podman and CRI-O on compiled expressions. The one
// difference: a container without arguments is no error, and no command matches
// it.
func (w *When) match(c *Container) bool {
	matched := false
	for _, condition := range []struct{ there, met bool }{
		{w.Always != nil, w.Always != nil && *w.Always},
		{w.HasBindMounts != nil, w.HasBindMounts != nil && *w.HasBindMounts && c.HasBindMounts},
	} {
		switch {
		case condition.met && w.Or:
			return true
		case condition.met:
			matched = true
		case condition.there && !w.Or:
			return false
		}
	}
	for i := range w.Annotations {
		switch met := w.Annotations[i].match(c.Annotations); {
		case met && w.Or:
			return true
		case met:
			matched = true
		case !w.Or:
			return false
		}
	}
	if len(w.Commands) == 0 {
		return matched
	}
	if len(c.Args) == 0 {
		return false
	}
	for _, re := range w.Commands {
		if re.MatchString(c.Args[0]) {
			return true
		}
	}
	return false
}

func (a *Annotation) match(annotations map[string]string) bool {
	for key, value := range annotations {
		if a.Key.MatchString(key) && a.Value.MatchString(value) {
			return true
		}
	}
	return false
}
