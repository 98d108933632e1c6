// SPDX-License-Identifier: Apache-2.0

package live

import (
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit"
)

// UndeliverableEdits returns an errdefs.ErrNotImplemented for each edit that an existing container
// can no longer receive: variables, hooks, network devices, groups and RDT configuration. With a
// request, only the request's edits count. Jackfield's own variables (edit.SourceJackfield) do not
// count, because devices.json, at a fixed path, has the same content.
func UndeliverableEdits(set *edit.Set, request string) []error {
	var list []error
	add := func(origin edit.Origin, format string, name ...any) {
		if request == "" || request == origin.Request {
			list = append(list, errdefs.ErrNotImplemented.WithMessage(fmt.Sprintf("%s: %s cannot be delivered: the "+
				"runtime has already read the container's configuration",
				origin, fmt.Sprintf(format, name...))))
		}
	}
	for _, e := range set.Env {
		if e.Origin.Source != edit.SourceJackfield {
			add(e.Origin, "variable %q", e.Name)
		}
	}
	for _, h := range set.Hooks {
		add(h.Origin, "%s hook %q", h.Stage, h.Path)
	}
	for _, n := range set.NetDevices {
		add(n.Origin, "network device %q", n.HostName)
	}
	for _, g := range set.GIDs {
		add(g.Origin, "additional group %d", g.ID)
	}
	if set.RDT != nil {
		add(set.RDT.Origin, "Intel RDT configuration")
	}
	return list
}
