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

// Rule grants or denies its subjects what it lists, and limits how much of it they get.
type Rule struct {
	// Name is unique among the rules. Every message and log line about the rule has it.
	Name string
	For  Subjects
	// Mode is Enforce, also when empty, or Audit. What a rule in audit mode allows is granted and
	// reported. What it denies, or what exceeds its limits, is reported and not refused.
	Mode  Mode
	Allow Allow
	// Deny wins over every rule's Allow. Each of its lists stands by itself: what comes from its
	// networks is denied.
	Deny Allow
	// Limits apply to the rule's subjects, whichever rule grants.
	Limits Limits
}

// Subjects says which containers a rule is for. Every part that is set must match. Within a list
// one match is enough; of the labels all must match. At least one part must be set. A rule for
// every container has the namespace "*".
type Subjects struct {
	// Namespaces are patterns of names. The empty pattern is for containers outside of a pod, such
	// as Podman's.
	Namespaces []string
	// PodLabels maps a label's key to a pattern of its value.
	PodLabels map[string]string
	// RuntimeClasses are patterns of the runtime handler's name. The empty pattern is for the
	// runtime's default handler. If the handler is unknown, the rule grants nothing, but denies and
	// limits.
	RuntimeClasses []string
	// Images are patterns of the image's name, as the runtime writes it. If the image is unknown,
	// the rule grants nothing, but denies and limits.
	Images []string
}

// Allow is what a rule grants, or denies.
type Allow struct {
	// CDI are patterns of fully qualified CDI names, vendor.com/class=name.
	CDI []string
	// Sockets and Devices are patterns of host paths.
	Sockets, Devices []string
	// Mounts are patterns of mounts that come neither with a CDI device nor with a socket.
	Mounts []Mount
	// Hooks are patterns of the host paths of hook programs.
	Hooks []string
	// Networks are patterns of network names, namespace/name. They narrow Sockets and Devices to
	// those of these networks. Without them, a rule that allows sockets or devices allows them from
	// every network and without one.
	Networks []string
	// Ports are patterns of ports of vswitches.
	Ports []PortPattern
	// NamedSockets are patterns of the names of sockets that the node's configuration names.
	NamedSockets []string
}

// Mount is a pattern of mounts: of bind mounts by their source, or of other file systems by their type.
type Mount struct {
	// Type is a type of file systems, such as overlay. With a type there is no Source: the kernel
	// ignores it, or the options name others. Empty stands for bind mounts.
	Type string
	// Source is a pattern of host paths.
	Source string
	// Destination is a pattern of paths in the container. Empty matches every path.
	Destination string
	// ReadOnly excludes writable mounts.
	ReadOnly bool
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
		f.addFault("name", diag.Quote(r.Name), fmt.Sprintf("must be 1 to %d letters, digits, '_', '-', '.', the first a letter or digit", maxRuleName))
	}
	if r.Mode != "" && r.Mode != Enforce && r.Mode != Audit {
		f.addFault("mode", diag.Quote(string(r.Mode)), fmt.Sprintf("must be %s or %s", Enforce, Audit))
	}
	if len(r.For.Namespaces)+len(r.For.PodLabels)+len(r.For.RuntimeClasses)+len(r.For.Images) == 0 {
		f.addFault("for", "", `must have namespaces, podLabels, runtimeClasses or images; a rule for every container has namespaces ["*"]`)
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
	case c.allow.isEmpty() && c.deny.isEmpty() && r.Limits == Limits{}:
		f.addFault("allow", "", "must have cdi, sockets, namedSockets, devices, mounts, hooks or ports, unless the rule has deny or limits")
	case len(r.Allow.Networks) > 0 && !c.allowsSocketsOrDevices():
		f.addFault("allow.networks", "", "networks narrow sockets and devices, but the rule allows neither")
	}
	if field, found, why := r.Limits.findFault(); field != "" {
		f.addFault(field, found, why)
	}
	return c
}

// compileValue compiles a pattern of something that may be empty: a label's value, the default
// runtime handler, or the namespace of a container outside of a pod.
func compileValue(pattern string) (glob.Glob, error) {
	if pattern == "" {
		return glob.Glob{}, nil
	}
	return glob.CompileName(pattern)
}

func validName(s string) bool {
	const characters = "_-.abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return s != "" && len(s) <= maxRuleName && strings.IndexByte(characters, s[0]) >= len("_-.") && strings.Trim(s, characters) == ""
}

// matches reports whether the rule is for the subject and may grant it something.
func (r *rule) matches(s *Subject) bool { return r.mismatch(s, false) == "" }

// restricts reports whether the rule's denials and limits apply to the subject. Unknown properties
// of a container exempt it from none.
func (r *rule) restricts(s *Subject) bool { return r.mismatch(s, true) == "" }

// mismatch returns the part of the rule's subjects that s does not match, or "". Unknown properties
// of the subject match or do not, as unknownMatches says.
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

// unknownProperty says which property that the rule selects by is unknown for the subject, or "".
func (r *rule) unknownProperty(s *Subject) string {
	switch {
	case len(r.labels) > 0 && s.LabelsUnknown:
		return fmt.Sprintf("is for pods labelled %s=%s, and the labels of the pod are unknown here", r.labels[0].key, r.labels[0].value)
	case r.handlers != nil && s.HandlerUnknown:
		return "is for the runtime classes " + listed(quoteAll(r.handlers)) + ", and the runtime class of the container is unknown here"
	case r.images != nil && s.Image == "":
		return "is for the images " + listed(quoteAll(r.images)) + ", and the image of this container is unknown"
	}
	return ""
}

// allowsNetwork reports whether the rule applies to what comes from the network, or, for an empty
// name, to what comes from none. A guessed name matches only patterns that the empty one matches.
func (r *rule) allowsNetwork(s *Subject, network string) bool {
	if s.NetworkGuessed {
		network = ""
	}
	return len(r.allow[kindNetwork]) == 0 || r.allow.matching(&item{kind: kindNetwork, name: network}) != ""
}

func matchAny(globs []glob.Glob, s string) bool {
	return slices.ContainsFunc(globs, func(g glob.Glob) bool { return g.Match(s) })
}
