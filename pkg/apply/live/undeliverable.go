// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/edits"
)

// Undeliverable is an edit that an existing container can no longer get. It is an error that
// unwraps to errdefs.ErrNotImplemented.
type Undeliverable struct {
	What   string // such as `variable "A"`
	Origin edits.Origin
}

// UndeliverableEdits lists the variables, hooks, groups, network devices and RDT configuration of
// the set. Jackfield's own variables (edits.SourceJackfield) are not listed: devices.json, at a fixed path,
// has the same content.
func UndeliverableEdits(set *edits.Set) []Undeliverable {
	var list []Undeliverable
	for i := range set.Env {
		if e := &set.Env[i]; e.Origin.Source != edits.SourceJackfield {
			list = append(list, Undeliverable{fmt.Sprintf("variable %q", e.Name), e.Origin})
		}
	}
	for i := range set.Hooks {
		h := &set.Hooks[i]
		list = append(list, Undeliverable{fmt.Sprintf("%s hook %q", h.Stage, h.Path), h.Origin})
	}
	for i := range set.NetDevices {
		n := &set.NetDevices[i]
		list = append(list, Undeliverable{fmt.Sprintf("network device %q", n.HostName), n.Origin})
	}
	for i := range set.GIDs {
		g := &set.GIDs[i]
		list = append(list, Undeliverable{fmt.Sprintf("additional group %d", g.ID), g.Origin})
	}
	if set.RDT != nil {
		list = append(list, Undeliverable{"Intel RDT configuration", set.RDT.Origin})
	}
	return list
}

func (u Undeliverable) Error() string {
	return fmt.Sprintf("%s: %s cannot be delivered: the runtime has already read the container's configuration", u.Origin, u.What)
}

// Unwrap makes the edit an errdefs.ErrNotImplemented.
func (u Undeliverable) Unwrap() error { return errdefs.ErrNotImplemented }

// JoinUndeliverable joins the list to one error. It is nil for an empty list.
func JoinUndeliverable(list []Undeliverable) error {
	errs := make([]error, len(list))
	for i, u := range list {
		errs[i] = u
	}
	return errors.Join(errs...)
}
