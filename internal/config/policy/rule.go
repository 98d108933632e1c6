// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/glob"
)

// Rule grants or denies the listed items to its subjects, and limits their number.
type Rule struct {
	// Name is unique among the rules. Every message and log line about the rule contains it.
	Name string
	For  Subjects
	// Mode is Enforce, which is the default, or Audit. A rule in audit mode grants its items and
	// reports that. Its denials and exceeded limits are only reported.
	Mode  Mode
	Allow Allow
	// Deny overrides every rule's Allow. Its lists are independent: every item of a denied network
	// is denied.
	Deny Allow
	// Limits apply to the rule's subjects, whichever rule grants. Limits.Memlock applies to the devices that this rule
	// grants.
	Limits Limits
}

// Subjects selects the containers of a rule. Every part that is set must match, and at least one
// must be set. Within a list one match is enough; labels must all match. A rule for every container
// has the namespace "*".
type Subjects struct {
	// Namespaces are patterns of names. The empty pattern matches containers outside of pods, such
	// as Podman's.
	Namespaces []string
	// PodLabels maps a label's key to a pattern for its value.
	PodLabels map[string]string
	// RuntimeClasses are patterns of the runtime handler's name. The empty pattern matches the
	// runtime's default handler. If the handler is unknown, the rule does not grant, but still
	// denies and limits.
	RuntimeClasses []string
	// Images are patterns of the image's name in the runtime's spelling. If the image is unknown,
	// the rule does not grant, but still denies and limits.
	Images []string
}

// Allow lists the items that a rule grants or denies.
type Allow struct {
	// CDI are patterns of fully qualified CDI names, vendor.com/class=name.
	CDI []string
	// Sockets and Devices are patterns of host paths.
	Sockets, Devices []string
	// Mounts are patterns of mounts that belong neither to a CDI device nor to a socket.
	Mounts []Mount
	// Hooks are patterns of the host paths of hook programs.
	Hooks []string
	// Networks are patterns of network names, namespace/name. They narrow Sockets and Devices to
	// items of these networks. Without them, a rule allows sockets and devices from every network
	// and from none.
	Networks []string
	// Ports are patterns of ports of vswitches.
	Ports []PortPattern
	// NamedSockets are patterns for the names of the configuration's named sockets.
	NamedSockets []string
}

// Mount is a pattern of mounts: of bind mounts by their source, or of other file systems by their
// type.
type Mount struct {
	// Type is a file system type, such as overlay. It excludes Source: the kernel ignores the
	// source, or the options name further ones. Empty matches bind mounts.
	Type string `json:"type"`
	// Source is a pattern of host paths.
	Source string `json:"source"`
	// Destination is a pattern of paths in the container. Empty matches every path.
	Destination string `json:"destination"`
	// ReadOnly excludes writable mounts.
	ReadOnly bool `json:"readOnly"`
}

// rule is a compiled Rule.
type rule struct {
	name  string
	audit bool

	namespaces []glob.Glob
	labels     []label
	handlers   []glob.Glob
	images     []glob.Glob

	allow, deny patternSet
	limits      Limits
}

type label struct {
	key   string
	value glob.Glob
}

const maxRuleName = 63

// compileRule compiles a rule. A rule with a fault must not be used.
func (f *faults) compileRule(r Rule) *rule {
	switch {
	case r.Name == "":
		f.addFault("name", "", "a rule needs a name")
	case !validName(r.Name):
		f.addFault("name", diag.Quote(r.Name), fmt.Sprintf("must be 1 to %d letters, digits, '_', '-', '.', the "+
			"first a letter or digit", maxRuleName))
	}
	if r.Mode != "" && r.Mode != Enforce && r.Mode != Audit {
		f.addFault("mode", diag.Quote(string(r.Mode)), fmt.Sprintf("must be %s or %s", Enforce, Audit))
	}
	if len(r.For.Namespaces)+len(r.For.PodLabels)+len(r.For.RuntimeClasses)+len(r.For.Images) == 0 {
		f.addFault("for", "", "must have namespaces, podLabels, runtimeClasses or images; "+
			`a rule for every container has namespaces ["*"]`)
	}
	c := &rule{
		name: r.Name, audit: r.Mode == Audit, limits: r.Limits,
		namespaces: f.compileList("for.namespaces", r.For.Namespaces, compileValue),
		handlers:   f.compileList("for.runtimeClasses", r.For.RuntimeClasses, compileValue),
		images:     f.compileList("for.images", r.For.Images, glob.CompileName),
		allow:      f.compilePatterns("allow", r.Allow),
		deny:       f.compilePatterns("deny", r.Deny),
	}
	for _, key := range slices.Sorted(maps.Keys(r.For.PodLabels)) {
		c.labels = append(c.labels, label{key, f.compile("for.podLabels."+key, r.For.PodLabels[key], compileValue)})
	}
	switch {
	case r.Limits.Memlock != 0 && !c.allowsDevices():
		f.addFault("limits.memlock", "", "the rule allows no devices that need the limit; add allow.devices or allow.cdi")
	case c.allow.isEmpty() && c.deny.isEmpty() && r.Limits == Limits{}:
		f.addFault("allow", "", "must have cdi, sockets, namedSockets, devices, mounts, hooks or ports, unless the "+
			"rule has deny or limits")
	case len(r.Allow.Networks) > 0 && !c.allowsSocketsOrDevices():
		f.addFault("allow.networks", "", "networks narrow sockets and devices, but the rule allows neither")
	}
	if field, found, why := r.Limits.validate(); field != "" {
		f.addFault(field, found, why)
	}
	return c
}

// compileValue compiles a pattern of a value that can be empty: a label's value, the default
// runtime handler, or the namespace of a container outside of a pod.
func compileValue(pattern string) (glob.Glob, error) {
	if pattern == "" {
		return glob.Glob{}, nil
	}
	return glob.CompileName(pattern)
}

func validName(s string) bool {
	const characters = "_-.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= maxRuleName && strings.IndexByte(characters, s[0]) >= len("_-.") &&
		strings.Trim(s, characters) == ""
}

// matches reports whether the rule can grant items to the subject.
func (r *rule) matches(s *Subject) bool { return r.mismatch(s, false) == "" }

// restricts reports whether the rule's denials and limits apply to the subject. Unknown properties
// do not exempt a container.
func (r *rule) restricts(s *Subject) bool { return r.mismatch(s, true) == "" }

// mismatch returns the part of the rule's subjects that s does not match, or "". unknownMatches
// decides whether unknown properties of s match.
func (r *rule) mismatch(s *Subject, unknownMatches bool) string {
	if r.namespaces != nil && !matchAny(r.namespaces, s.Namespace) {
		return "namespaces"
	}
	for i := range r.labels {
		l := &r.labels[i]
		if s.LabelsUnknown && unknownMatches {
			break
		}
		if value, ok := s.Labels[l.key]; !ok || !l.value.Match(value) {
			return "podLabels"
		}
	}
	matchKnown := func(globs []glob.Glob, text string, known bool) bool {
		return globs == nil || known && matchAny(globs, text) || !known && unknownMatches
	}
	switch {
	case !matchKnown(r.handlers, s.RuntimeHandler, !s.HandlerUnknown):
		return "runtimeClasses"
	case !matchKnown(r.images, s.Image, s.Image != ""):
		return "images"
	}
	return ""
}

// unknownProperty describes a property that the rule selects by and that is unknown for the
// subject, or "".
func (r *rule) unknownProperty(s *Subject) string {
	switch {
	case len(r.labels) > 0 && s.LabelsUnknown:
		return fmt.Sprintf("is for pods labelled %s=%s, and the labels of the pod are unknown here", r.labels[0].key,
			r.labels[0].value)
	case r.handlers != nil && s.HandlerUnknown:
		return "is for the runtime classes " + listed(quoteAll(r.handlers)) +
			", and the runtime class of the container is unknown here"
	case r.images != nil && s.Image == "":
		return "is for the images " + listed(quoteAll(r.images)) + ", and the image of this container is unknown"
	}
	return ""
}

// allowsNetwork reports whether the rule applies to items of the network or, for an empty name, to
// items without a network. A guessed name is treated like an empty one.
func (r *rule) allowsNetwork(s *Subject, network string) bool {
	if s.NetworkGuessed {
		network = ""
	}
	return len(r.allow[kindNetwork]) == 0 || r.allow.matching(&item{kind: kindNetwork, name: network}) != ""
}

// allowsDevices reports whether the rule allows device nodes, alone or in CDI devices.
func (r *rule) allowsDevices() bool { return len(r.allow[kindDevice]) > 0 || len(r.allow[kindCDI]) > 0 }

func matchAny(globs []glob.Glob, s string) bool {
	return slices.ContainsFunc(globs, func(g glob.Glob) bool { return g.Match(s) })
}
