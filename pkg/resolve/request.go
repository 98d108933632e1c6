// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/staging"
)

// Request is one container about to be created, as an adapter sees it.
type Request struct {
	SandboxID, ContainerID string
	Namespace, Pod, PodUID string
	Container              string // its name in the pod
	RuntimeHandler         string
	HandlerUnknown         bool              // nothing says which the runtime handler is
	LabelsUnknown          bool              // nothing says which labels the pod has
	Image                  string            // as the runtime names it; "" when it does not say
	Labels, Annotations    map[string]string // of the pod
	User                   *User             // nil when the runtime does not say
	UserNS                 *UserNS           // nil where it has the host's
	Have                   edits.Existing    // what the container has without Jackfield
	Args                   []string          // of its process
	ContainerAnnotations   map[string]string // its own, beside the pod's
	CDIDevices             []string          // qualified names the door itself was given
	// Carries says why the door cannot deliver some edit of a request, by
	// Origin.Request, in a set; nil for no reason, and a nil Carries for a door that
	// delivers everything. It is asked of optional requests, which are skipped then:
	// of the others the door itself tells.
	Carries func(set *edits.Set, request string) error
	// FromManifest is set where the request is a manifest's, which does not have the variables that the kubelet adds. Where there is no kubelet to ask
	// either, Explain does not check resources.
	FromManifest bool
	// Holds reports whether a running container has a socket of the host, by its root,
	// symlinks resolved, and the path below it; nil for none. What was granted is the
	// container's as long as it runs.
	Holds func(root, rel string) bool
}

// User is the container's process user, as it is numbered in its user namespace.
type User struct{ UID, GID uint32 }

// Name is the container's name for messages.
func (r *Request) Name() string {
	return strings.Trim(r.Namespace+"/"+r.Pod+"/"+r.Container, "/")
}

// Plan is what a container gets.
type Plan struct {
	Set     edits.Set          // the edits
	Staging *staging.Container // what the edits need on the host; nil for nothing
	Items   []Item             // one for each request, in order
	// Usage is what the container gets, where a rule limits what its pod gets: to
	// be kept where Ledger.Note finds it after a restart.
	Usage *policy.Usage
	// Unchecked is what a source has that could not be read: the container may have
	// something of it. Only Engine.Running sets it.
	Unchecked []error

	memory *memory
}

// Outcome says what became of one request.
type Outcome string

// The outcomes. Refused and Failed make the plan an error.
const (
	Injected  Outcome = "injected"   // all of its edits are in the set
	Present   Outcome = "present"    // the container has all of it already
	LeftAlone Outcome = "left alone" // found, not asked for, and no rule is in charge
	Skipped   Outcome = "skipped"    // optional, and could not be delivered
	Refused   Outcome = "refused"    // by policy
	Failed    Outcome = "failed"
	// Withheld is the outcome of a request that could be injected, in a container that is
	// refused because of something else.
	Withheld Outcome = "withheld"
	// NotChecked is the outcome of a request that was not resolved, because something about
	// the pod is not known yet. No adapter has it, only a command that explains.
	NotChecked Outcome = "not checked"
)

// WithheldItems are the items of a container that is refused, of which none is injected.
func WithheldItems(items []Item) []Item {
	items = slices.Clone(items)
	for i := range items {
		if items[i].Outcome == Injected {
			items[i].Outcome = Withheld
		}
	}
	return items
}

// RequestKind is what a request is for.
type RequestKind string

// The kinds.
const (
	KindCDI            RequestKind = "cdi"             // a CDI device
	KindNetwork        RequestKind = "network"         // a network attachment
	KindResource       RequestKind = "resource"        // what the kubelet allocated
	KindHook           RequestKind = "hook"            // a hook of hooks.d
	KindDeviceInjector RequestKind = "device-injector" // a node or mount in device-injector's words
)

// Item is one request and its outcome.
type Item struct {
	Kind    RequestKind `json:"kind"`
	Request string      `json:"request"`          // as messages name it; the same as in its edits' origins
	From    string      `json:"from"`             // annotation key, or device-info file
	File    string      `json:"file,omitempty"`   // the file that describes it
	Rule    string      `json:"rule,omitempty"`   // the policy rule that granted it
	Outcome Outcome     `json:"outcome"`          //
	Reason  string      `json:"reason,omitempty"` // why it was not injected
	Audit   string      `json:"audit,omitempty"`  // what mode enforce would have refused
	Notes   []string    `json:"notes,omitempty"`  // what a person should know of it
	Err     error       `json:"-"`

	Optional bool `json:"-"` // the annotation says so
}

// Error is why a container's plan could not be made: every request that failed,
// in order. It unwraps to each of their errors.
type Error struct {
	Container string // namespace/pod/container
	Errs      []error
	Items     []Item // what became of each request; none where the requests could not be read
}

// Error tells the first 16, and how many more there are: the text ends in the status
// of a pod.
func (e *Error) Error() string {
	const told = 16
	var b strings.Builder
	fmt.Fprintf(&b, "container %q: ", e.Container)
	if len(e.Errs) == 1 {
		b.WriteString(e.Errs[0].Error())
		return b.String()
	}
	fmt.Fprintf(&b, "%d problems:", len(e.Errs))
	for i, err := range e.Errs[:min(len(e.Errs), told)] {
		fmt.Fprintf(&b, " (%d) %v", i+1, err)
	}
	if more := len(e.Errs) - told; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Unwrap gives the errors one by one.
func (e *Error) Unwrap() []error { return e.Errs }
