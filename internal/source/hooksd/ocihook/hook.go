// SPDX-License-Identifier: Apache-2.0

package ocihook

import "slices"

// Hook is one hooks.d file. It must not be changed.
type Hook struct {
	// Name is the file's name, by which files mask each other and are ordered.
	Name string
	// File is its host path.
	File string
	// Path (on the host), Args, Env and Timeout (in seconds) are those of the OCI hook.
	Path      string
	Args, Env []string
	Timeout   *int
	// Stages are names of the OCI Runtime Specification. The deprecated prestart is replaced by
	// createRuntime, as in Podman and CRI-O.
	Stages []string
	// Err is a *diag.Diagnostic if the program cannot be run.
	Err error
	// When is the conditions.
	When When
}

// Matching returns the hooks for a container, in order.
func Matching(hooks []*Hook, c *Container) []*Hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h *Hook) bool { return !h.When.Match(c) })
}

// AskedBy reports whether the hook has conditions on annotations and these match: then their author asked
// for the hook.
func (h *Hook) AskedBy(annotations map[string]string) bool {
	return h.When.suffices(h.When.annotationsMet(annotations))
}
