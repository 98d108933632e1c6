// SPDX-License-Identifier: Apache-2.0

package resolve

import "github.com/jackfield/jackfield/pkg/edits"

// memory is what one plan lies in.
type memory struct {
	engine *Engine
	plan   Plan
	set    edits.Set
	items  []Item
	lists  []string // of the set, as the registry gave them
	wanted int      // strings in lists
}

// memory is some that nobody uses.
func (e *Engine) memory() *memory {
	m, _ := e.memories.Get().(*memory)
	if m == nil {
		m = &memory{engine: e}
	}
	return m
}

// Release gives the plan's memory to the next resolution: of the plan, its set and
// its items nothing may be used afterwards, but for the strings and what was copied.
// It need not be called; a caller who resolves again and again saves memory by it.
func (p *Plan) Release() {
	m := p.memory
	if m == nil {
		return
	}
	s := &p.Set
	clear(s.Env)
	clear(s.Devices)
	clear(s.Mounts)
	clear(s.Hooks)
	clear(p.Items)
	clear(m.lists[:cap(m.lists)])
	m.set, m.items = edits.Set{Env: s.Env, Devices: s.Devices, Mounts: s.Mounts, Hooks: s.Hooks}, p.Items[:0]
	if m.wanted > cap(m.lists) {
		m.lists = make([]string, 0, m.wanted)
	}
	m.plan = Plan{}
	m.engine.memories.Put(m)
}
