// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
)

// Item is one request and its outcome.
type Item struct {
	Kind      RequestKind `json:"kind"`
	Name      string      `json:"name"`                // of a device, network, resource or hook; path of a node or mount
	Interface string      `json:"interface,omitempty"` // of a network, in the pod
	Device    string      `json:"device,omitempty"`    // of a resource: ID of the device plugin; of a claim: name
	Request   string      `json:"request"`             // Kind and Name in messages, and in the origins of its edits
	From      string      `json:"from"`                // annotation key, or device-info file
	File      string      `json:"file,omitempty"`      // the file that describes it
	Rule      string      `json:"rule,omitempty"`      // the policy rule that granted it
	Outcome   Outcome     `json:"outcome"`             //
	Reason    string      `json:"reason,omitempty"`    // the text of Err, for people
	// Remedy grants the request, which policy refused or no rule grants; Reason has it as text.
	Remedy *policy.Remedy `json:"remedy,omitempty"`
	Audit  string         `json:"audit,omitempty"` // the texts of Audits
	Notes  []string       `json:"notes,omitempty"` // remarks for the user
	Err    error          `json:"-"`               // why it was not injected
	Audits []error        `json:"-"`               // the refusals of mode enforce

	Optional bool `json:"-"` // by the annotation
	// Asked are the things that policy decided on, at most MaxAsked, in the order of the decisions.
	Asked []policy.Asked `json:"-"`
}

// MaxAsked bounds Item.Asked: one request can be for every device of a kind.
const MaxAsked = 256

// RequestKind is the kind of thing that is requested.
type RequestKind string

// The kinds.
const (
	KindCDI            RequestKind = "cdi"             // a CDI device
	KindNetwork        RequestKind = "network"         // a network attachment
	KindResource       RequestKind = "resource"        // devices that the kubelet allocated
	KindClaim          RequestKind = "claim"           // a device of a resource claim (DRA)
	KindSocket         RequestKind = "socket"          // a named socket
	KindHook           RequestKind = "hook"            // a hook of hooks.d
	KindDeviceInjector RequestKind = "device-injector" // a node or mount from an annotation of device-injector
)

// Outcome is the result of one request.
type Outcome string

// The outcomes. Refused and Failed make the plan an error.
const (
	Injected  Outcome = "injected"  // all of its edits are in the set
	Present   Outcome = "present"   // the container has all of it already
	Unmanaged Outcome = "unmanaged" // discovered, and granted by no rule
	Skipped   Outcome = "skipped"   // optional, and could not be delivered
	Refused   Outcome = "refused"   // by policy
	Failed    Outcome = "failed"
	// Withheld is the outcome of a request that could be injected, in a container that is
	// refused because of another request.
	Withheld Outcome = "withheld"
	// NotChecked is the outcome of a request that was not resolved, because something about
	// the pod is not known yet. Only commands that explain have it.
	NotChecked Outcome = "not checked"
)

// SetOutcome sets an outcome other than Injected or Present, and the reason.
func (it *Item) SetOutcome(o Outcome, err error) {
	it.Outcome, it.Err, it.Reason = o, err, diag.ErrorText(err)
	if unmanaged, ok := errors.AsType[*UnmanagedError](err); ok && unmanaged.Refusal != nil {
		it.Remedy = unmanaged.Refusal.RemedyData()
	}
	refused, ok := errors.AsType[*policy.RefusedError](err)
	if ok {
		it.Remedy = refused.RemedyData()
	}
	if ok && o != Unmanaged {
		it.addAsked(refused.Asked)
	}
}

// FailsContainer reports whether the container is not created because of this request.
func (it *Item) FailsContainer() bool { return it.Outcome == Failed || it.Outcome == Refused }

// WithheldItems returns the items of a container that is refused: none of them is injected.
func WithheldItems(items []Item) []Item {
	items = slices.Clone(items)
	for i := range items {
		if items[i].Outcome == Injected {
			items[i].Outcome = Withheld
		}
	}
	return items
}

// addAudit adds a refusal that audit mode overrides.
func (it *Item) addAudit(err error) {
	it.Audits = append(it.Audits, err)
	if it.Audit != "" {
		it.Audit += "; "
	}
	it.Audit += err.Error()
}

// addAsked adds a thing that policy decided on, once.
func (it *Item) addAsked(asked policy.Asked) {
	if asked.List != "" && len(it.Asked) < MaxAsked && !slices.Contains(it.Asked, asked) {
		it.Asked = append(it.Asked, asked)
	}
}

// noteGrant records a grant of policy, and the refusal that a grant of audit mode overrides.
func (it *Item) noteGrant(g policy.Grant) {
	it.addAsked(g.Asked)
	if g.Audited && it.Audit == "" && g.Refusal != nil {
		it.addAudit(g.Refusal)
	}
}

// maxRequest bounds the names of a request, in bytes. The pod's author can write names as long as an
// annotation, and they end up in logs and in the status.
const maxRequest = 512

// shorten cuts a name that is longer than maxRequest.
func shorten(name string) string {
	if len(name) <= maxRequest {
		return name
	}
	return fmt.Sprintf("%s... (%d bytes)", strings.ToValidUTF8(name[:maxRequest], ""), len(name))
}
