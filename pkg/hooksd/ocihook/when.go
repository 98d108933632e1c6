// SPDX-License-Identifier: Apache-2.0

package ocihook

import "regexp"

// Container is what the conditions depend on.
type Container struct {
	// Args is process.args of the OCI configuration.
	Args []string
	// Annotations are those of the container and the pod. The pod's take precedence.
	Annotations map[string]string
	// HasBindMounts says that the user asked for a bind mount from the host. Mounts that the runtime adds
	// do not count.
	HasBindMounts bool
}

// When is the compiled conditions of a file. All must match. With Or, of the old schema 0.1.0, one is
// enough.
type When struct {
	Or                    bool
	Always, HasBindMounts *bool
	Annotations           []Annotation
	Commands              []*regexp.Regexp
}

// Annotation is one pair of unanchored expressions: one annotation must match
// both.
type Annotation struct{ Key, Value *regexp.Regexp }

// match is When.Match of the parser of Podman and CRI-O on compiled expressions, with one difference: for
// a container without arguments no command matches, and it is no error.
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
