// SPDX-License-Identifier: Apache-2.0

package ocihook

import "slices"

// Hook is one hooks.d file. It must not be changed.
type Hook struct {
	// Name is the file's name. Files mask each other and are ordered by it.
	Name string
	// File is the file's host path.
	File string
	// Path (on the host), Args, Env and Timeout (in seconds) are the OCI hook's fields.
	Path      string
	Args, Env []string
	Timeout   *int
	// Stages are names of the OCI Runtime Specification. Like in Podman and CRI-O, the deprecated
	// prestart is replaced by createRuntime.
	Stages []string
	// Err is a *diag.Diagnostic if the program cannot be run.
	Err error
	// When holds the conditions.
	When When
}

// Matching returns the hooks for a container, in order.
func Matching(hooks []*Hook, c *Container) []*Hook {
	return slices.DeleteFunc(slices.Clone(hooks), func(h *Hook) bool { return !h.When.Match(c) })
}

// AskedBy reports whether the hook has conditions on annotations that match. The author of the
// annotations then requested the hook.
func (h *Hook) AskedBy(annotations map[string]string) bool {
	return h.When.suffices(h.When.annotationsMet(annotations))
}
