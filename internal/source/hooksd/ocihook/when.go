// SPDX-License-Identifier: Apache-2.0

package ocihook

import (
	"regexp"
	"slices"
)

// Container holds the properties on which conditions depend.
type Container struct {
	// Args is process.args of the OCI configuration.
	Args []string
	// Annotations are the annotations of container and pod. The pod's take precedence.
	Annotations map[string]string
	// HasBindMounts is set if the user requested a bind mount from the host. Mounts that the
	// runtime adds do not count.
	HasBindMounts bool
}

// When holds a file's compiled conditions. All must match. With Or, of the old schema 0.1.0, one is
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

// Match reports whether the conditions match the container. It is When.Match of the parser of
// Podman and CRI-O on compiled expressions, with one difference: a container without arguments is
// no error, and no command matches it.
func (w *When) Match(c *Container) bool {
	met := w.annotationsMet(c.Annotations)
	if w.Always != nil {
		met = append(met, *w.Always)
	}
	if w.HasBindMounts != nil {
		met = append(met, *w.HasBindMounts && c.HasBindMounts)
	}
	if len(w.Commands) > 0 {
		isCommand := func(re *regexp.Regexp) bool { return re.MatchString(c.Args[0]) }
		met = append(met, len(c.Args) > 0 && slices.ContainsFunc(w.Commands, isCommand))
	}
	return w.suffices(met)
}

// annotationsMet returns for each condition on annotations whether it is met.
func (w *When) annotationsMet(annotations map[string]string) []bool {
	var met []bool
	for i := range w.Annotations {
		met = append(met, w.Annotations[i].match(annotations))
	}
	return met
}

// suffices reports whether the met conditions are enough.
func (w *When) suffices(met []bool) bool {
	if w.Or {
		return slices.Contains(met, true)
	}
	return len(met) > 0 && !slices.Contains(met, false)
}

func (a *Annotation) match(annotations map[string]string) bool {
	for key, value := range annotations {
		if a.Key.MatchString(key) && a.Value.MatchString(value) {
			return true
		}
	}
	return false
}
