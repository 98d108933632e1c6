// SPDX-License-Identifier: Apache-2.0

package ocihook

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
	// Err is why the program cannot be run, a *hooksd.Problem; nil when it can.
	Err error
	// When says in which containers it is wanted.
	When When
}

// Match reports whether the conditions match the container.
func (h *Hook) Match(c *Container) bool { return h.When.match(c) }

// Matching returns the hooks for a container, in order.
func Matching(hooks []*Hook, c *Container) []*Hook {
	var out []*Hook
	for _, h := range hooks {
		if h.Match(c) {
			out = append(out, h)
		}
	}
	return out
}

// AskedBy reports whether the hook is conditioned on annotations and these
// match, so that whoever wrote them asked for the hook.
func (h *Hook) AskedBy(annotations map[string]string) bool {
	if len(h.When.Annotations) == 0 {
		return false
	}
	for i := range h.When.Annotations {
		switch met := h.When.Annotations[i].match(annotations); {
		case met && h.When.Or:
			return true
		case !met && !h.When.Or:
			return false
		}
	}
	return !h.When.Or
}
