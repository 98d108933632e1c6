// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"

	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
)

// Plan is everything that a container gets.
type Plan struct {
	Set     edit.Set        // the edits
	Staging *edit.Container // directories and files that the edits need on the host; nil for none
	Items   []Item          // one for each request, in order
	// Usage is the usage of the container, where a rule limits the usage of its pod. The adapter stores
	// it for Ledger.RecordUsage after a restart.
	Usage *policy.Usage
	// Devices are the device nodes of the requests, with their devices. The adapter stores them while the container lives.
	Devices []HeldDevice
	// Unchecked has the errors of sources that could not be read: the container can have
	// devices of them. Only Engine.ResolveRunning and Engine.Explain set it.
	Unchecked []error
}

// DropGroups removes the additional groups for which reason returns a text, and adds the text to the notes of the
// requests. It is for an adapter that cannot deliver groups.
func (p *Plan) DropGroups(reason func(set *edit.Set, g *edit.GID) string) {
	var kept []edit.GID
	for i := range p.Set.GIDs {
		g := &p.Set.GIDs[i]
		text := reason(&p.Set, g)
		if text == "" {
			kept = append(kept, *g)
			continue
		}
		at := slices.IndexFunc(p.Items, func(it Item) bool { return it.Request == g.Origin.Request })
		if at >= 0 {
			p.Items[at].Notes = append(p.Items[at].Notes, text)
		}
	}
	p.Set.GIDs = kept
}
