// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// Rule grants some things to some subjects, denies them some, and bounds how
// many they get.
type Rule struct {
	// Name is unique among the rules; it is in every message and log line
	// about the rule.
	Name string
	For  Subjects
	// Mode is Enforce, also when empty, or Audit: a rule on trial. What it
	// allows is granted and reported as what would be refused without it; what
	// it denies, or what exceeds its limits, is reported and not refused.
	Mode  Mode
	Allow Allow
	// Deny wins over every rule's Allow. Each of its lists stands by itself:
	// its networks bring nothing.
	Deny Allow
	// Limits hold for the rule's subjects, whichever rule grants.
	Limits Limits
}

// Subjects says whom a rule is for. Each part that is there must match; within
// a list one match is enough, of the labels all must match. At least one part
// must be there; a rule for everybody says so with the namespace "*".
type Subjects struct {
	// Namespaces are patterns of names. The empty pattern is for containers that
	// are of no pod, such as Podman's.
	Namespaces []string
	// PodLabels are from label key to a pattern of its value.
	PodLabels map[string]string
	// RuntimeClasses are patterns of the runtime handler's name. The empty
	// pattern is for the runtime's default handler. Where the handler is not known,
	// the rule grants nothing, and denies and limits.
	RuntimeClasses []string
	// Images are patterns of the image's name as the runtime has it. Where the image
	// is not known, the rule grants nothing, and denies and limits.
	Images []string
}

// Allow is what a rule grants, or denies.
type Allow struct {
	// CDI are patterns of fully qualified CDI names, vendor.com/class=name.
	CDI []string
	// Sockets and Devices are patterns of host paths.
	Sockets, Devices []string
	// Mounts are of what is not of CDI and not a socket.
	Mounts []Mount
	// Hooks are patterns of the host paths of hook programs.
	Hooks []string
	// Networks are patterns of network names, namespace/name. They narrow
	// Sockets and Devices to what these networks bring. Without them a rule
	// that allows sockets or devices allows them from any network and from
	// none.
	Networks []string
}

// Mount is a pattern of mounts.
type Mount struct {
	// Source is a pattern of host paths.
	Source string
	// Destination is a pattern of paths in the container; empty for any.
	Destination string
	// ReadOnly leaves out mounts that can be written.
	ReadOnly bool
}

// RuleError says what is wrong with a rule. It unwraps to
// errdefs.ErrInvalidArgument.
type RuleError struct {
	// Source is where the rules are from, as given to New.
	Source string
	// Rule is the rule's name.
	Rule string
	// Field is the dotted field within the configuration, such as
	// policy.rules[0].allow.sockets[1].
	Field string
	// Why is the value found and the rule it breaks.
	Why string
}

// Error implements error.
func (e *RuleError) Error() string {
	return fmt.Sprintf("compile policy rule %s: %s in %s: %s", quote(e.Rule), e.Field, e.Source, e.Why)
}

// Unwrap implements the errors package's protocol.
func (e *RuleError) Unwrap() error { return errdefs.ErrInvalidArgument }

// rule is a compiled Rule.
type rule struct {
	name     string
	audit    bool
	subjects Subjects // for messages

	namespaces []Glob
	labels     []label
	handlers   []Glob
	images     []Glob

	allow, deny things
	limits      Limits
}

// things is a compiled Allow.
type things struct {
	lists    [kindNetwork][]Glob // by kind, but for mounts
	mounts   []mount
	networks []Glob
}

type mount struct {
	text        string // as written, for messages
	source      Glob
	destination Glob // the zero value for any
	any         bool
	readOnly    bool
}

type label struct {
	key   string
	value Glob
}

const maxRuleName = 63

// faults collects what is wrong with a rule.
type faults struct {
	rule string
	list []*RuleError
}

func (f *faults) add(field, why string) {
	f.list = append(f.list, &RuleError{Rule: f.rule, Field: field, Why: why})
}

// compileRule compiles a rule. It returns every fault; with one, the rule is not to be used.
func compileRule(r Rule) (rule, []*RuleError) {
	c := rule{name: r.Name, subjects: r.For, audit: r.Mode == Audit, limits: r.Limits}
	f := &faults{rule: r.Name}
	switch {
	case r.Name == "":
		f.add("name", "a rule needs a name")
	case !validName(r.Name):
		f.add("name", fmt.Sprintf("%s: want 1 to %d letters, digits, '_', '-', '.', the first a letter or digit", quote(r.Name), maxRuleName))
	}
	if r.Mode != "" && r.Mode != Enforce && r.Mode != Audit {
		f.add("mode", fmt.Sprintf("%s: want %s or %s", quote(string(r.Mode)), Enforce, Audit))
	}
	if len(r.For.Namespaces)+len(r.For.PodLabels)+len(r.For.RuntimeClasses)+len(r.For.Images) == 0 {
		f.add("for", `a rule is for somebody: give namespaces, podLabels, runtimeClasses or images; a rule for all has namespaces ["*"]`)
	}
	switch {
	case r.Allow.things()+len(r.Allow.Networks)+r.Deny.things()+len(r.Deny.Networks) == 0 && r.Limits == Limits{}:
		f.add("allow", "a rule allows something (cdi, sockets, devices, mounts or hooks), or has deny or limits")
	case len(r.Allow.Networks) > 0 && len(r.Allow.Sockets)+len(r.Allow.Devices) == 0:
		f.add("allow.networks", "networks narrow sockets and devices, of which the rule allows none")
	}
	if field, why := r.Limits.fault(); field != "" {
		f.add(field, why)
	}
	f.compileList("for.namespaces", r.For.Namespaces, compileValue, &c.namespaces)
	for _, key := range slices.Sorted(maps.Keys(r.For.PodLabels)) {
		g, err := compileValue(r.For.PodLabels[key])
		if err != nil {
			f.add("for.podLabels."+key, err.Error())
		}
		c.labels = append(c.labels, label{key, g})
	}
	f.compileList("for.runtimeClasses", r.For.RuntimeClasses, compileValue, &c.handlers)
	f.compileList("for.images", r.For.Images, CompileName, &c.images)
	c.allow.compile(f, "allow", r.Allow)
	c.deny.compile(f, "deny", r.Deny)
	return c, f.list
}

func (f *faults) compileList(field string, patterns []string, compile func(string) (Glob, error), into *[]Glob) {
	for i, pattern := range patterns {
		g, err := compile(pattern)
		if err != nil {
			f.add(fmt.Sprintf("%s[%d]", field, i), err.Error())
			continue
		}
		*into = append(*into, g)
	}
}

// compileCDI compiles a pattern of CDI names, and refuses one that no name can
// match.
func compileCDI(pattern string) (Glob, error) {
	if !strings.Contains(pattern, "*") {
		kind, name, ok := strings.Cut(pattern, "=")
		if vendor, class, slash := strings.Cut(kind, "/"); !ok || !slash || vendor == "" || class == "" || name == "" {
			return Glob{}, fmt.Errorf("%s: want vendor.com/class=name, with * for any characters", quote(pattern))
		}
	}
	return CompileName(pattern)
}

// compileValue compiles a pattern of what may well be empty: a label's value,
// the default runtime handler, or the namespace of a container of no pod.
func compileValue(pattern string) (Glob, error) {
	if pattern == "" {
		return Glob{}, nil
	}
	return CompileName(pattern)
}

func validName(s string) bool {
	if len(s) > maxRuleName {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || c != '_' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

// matches reports whether the rule is for the subject, so that it may grant it
// something.
func (r *rule) matches(s *Subject) bool {
	return r.mismatch(s) == ""
}

// restricts reports whether what the rule denies and limits holds for the subject:
// what is not known of a container keeps it from no restriction.
func (r *rule) restricts(s *Subject) bool {
	return r.mismatchOf(s, true) == ""
}

// mismatch returns the part of the rule's subjects that s does not match, ""
// when all match.
func (r *rule) mismatch(s *Subject) string { return r.mismatchOf(s, false) }

// mismatchOf is mismatch, where what is not known of the subject matches or not.
func (r *rule) mismatchOf(s *Subject, unknown bool) string {
	if r.namespaces != nil && !matchAny(r.namespaces, s.Namespace) {
		return "namespaces"
	}
	for i := range r.labels {
		l := &r.labels[i]
		if s.LabelsUnknown && unknown {
			break
		}
		if value, ok := s.Labels[l.key]; !ok || !l.value.Match(value) {
			return "podLabels"
		}
	}
	if r.handlers != nil && !matchKnown(r.handlers, s.RuntimeHandler, !s.HandlerUnknown, unknown) {
		return "runtimeClasses"
	}
	if r.images != nil && !matchKnown(r.images, s.Image, s.Image != "", unknown) {
		return "images"
	}
	return ""
}

func matchKnown(globs []Glob, s string, known, otherwise bool) bool {
	if !known {
		return otherwise
	}
	return matchAny(globs, s)
}

// unknown says what the rule goes by and nothing says of the subject, "" for none.
func (r *rule) unknown(s *Subject) string {
	switch {
	case len(r.labels) > 0 && s.LabelsUnknown:
		return fmt.Sprintf("is for pods labelled %s=%s, and nothing here says which labels the pod has", r.labels[0].key, r.labels[0].value)
	case r.handlers != nil && s.HandlerUnknown:
		return "is for the runtime classes " + listed(quoted(r.subjects.RuntimeClasses)) + ", and nothing here says which the container has"
	case r.images != nil && s.Image == "":
		return "is for the images " + listed(quoted(r.subjects.Images)) + ", and the runtime does not say which this container has"
	}
	return ""
}

// carries reports whether the rule is for what the network brings, or, for an
// empty name, for what no network brings. A guessed name matches what the empty one
// does: patterns of all names alone.
func (r *rule) carries(s *Subject, network string) bool {
	if s.NetworkGuessed {
		network = ""
	}
	return r.allow.networks == nil || matchAny(r.allow.networks, network)
}

func matchAny(globs []Glob, s string) bool {
	for i := range globs {
		if globs[i].Match(s) {
			return true
		}
	}
	return false
}
