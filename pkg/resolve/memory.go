// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"os"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
)

// memory is what one plan lies in.
type memory struct {
	engine *Engine
	plan   Plan
	modes  []os.FileMode
	lists  cdiregistry.Lists // of the set
}

// memory is some that nobody uses.
func (e *Engine) memory() *memory {
	m, _ := e.memories.Get().(*memory)
	if m == nil {
		m = &memory{engine: e}
	}
	return m
}

// mode is a place of its own for a mode of the set.
func (m *memory) mode(mode os.FileMode) *os.FileMode {
	if len(m.modes) == cap(m.modes) {
		m.modes = make([]os.FileMode, 0, 8) // those that are pointed at stay where they are
	}
	m.modes = append(m.modes, mode)
	return &m.modes[len(m.modes)-1]
}

// fewEdits is up to how many edits of a kind are left where they were in memory that
// nobody uses: they hold no more than a few spec files' texts.
const fewEdits = 16

// empty takes the items out of a list, and leaves it the memory.
func empty[T any](list *[]T) {
	if len(*list) > fewEdits {
		clear(*list)
	}
	*list = (*list)[:0]
}

// Release gives the plan's memory to the next resolution: of the plan, its set and
// its items nothing may be used afterwards, but for the strings and what was copied.
// It need not be called; a caller who resolves again and again saves memory by it.
func (p *Plan) Release() {
	m, s := p.memory, &p.Set
	if m == nil {
		return
	}
	empty(&p.Items)
	empty(&s.Env)
	empty(&s.Devices)
	empty(&s.Mounts)
	empty(&s.Hooks)
	s.NetDevices, s.GIDs, s.RDT = nil, nil, nil
	p.Staging, p.Usage, p.memory = nil, nil, nil
	m.modes = m.modes[:0]
	m.lists.Reset()
	m.engine.memories.Put(m)
}
