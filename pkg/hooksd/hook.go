// SPDX-License-Identifier: Apache-2.0

package hooksd

import "strconv"

// Hook is one hooks.d file. It is not to be altered.
type Hook struct {
	// Name is the file's name, by which files mask each other and are ordered.
	Name string
	// File is its host path.
	File string
	// Path, Args, Env and Timeout (in seconds) are the OCI hook's. Path is on the
	// host.
	Path      string
	Args, Env []string
	Timeout   *int
	// Stages are names of the OCI runtime specification. The deprecated prestart
	// is among them as createRuntime, as Podman and CRI-O have it.
	Stages []string
	// Err is why the program cannot be run, a *Problem; nil when it can.
	Err error

	when when
}

// Match reports whether the conditions match the container.
func (h *Hook) Match(c *Container) bool { return h.when.match(c) }

// AskedBy reports whether the hook is conditioned on annotations and these
// match, so that whoever wrote them asked for the hook.
func (h *Hook) AskedBy(annotations map[string]string) bool {
	if len(h.when.annotations) == 0 {
		return false
	}
	for i := range h.when.annotations {
		switch met := h.when.annotations[i].match(annotations); {
		case met && h.when.or:
			return true
		case !met && !h.when.or:
			return false
		}
	}
	return !h.when.or
}

// index is a field's element.
func index(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }
