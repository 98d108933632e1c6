// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackfield/jackfield/pkg/config"
)

// A state directory that answers late, and that the configuration in force cannot be used
// with at first, is not kept open, and is tried again.
func TestALateStateDirectoryIsTriedAgain(t *testing.T) {
	content := fmt.Sprintf(runningConfig, runningRule)
	h := newRunningHost(t, content)
	// The watch of the file looks once when it begins. After a change it has.
	h.rename(content + "# changed\n")
	h.wait("the changed file", func(s ConfigStatus) bool { return s.Generation == 2 })
	good := h.p.core.Load()
	faulty := *good.cfg
	faulty.Policy.Rules = []config.Rule{{Name: "r", Allow: config.Allow{Sockets: []string{"relative"}}}}
	h.p.changing.Lock()
	h.p.core.Store(&core{engine: good.engine, cfg: &faulty, staged: !good.staged})
	h.p.changing.Unlock()
	opened := make(chan openedStore, 1)
	opened <- openedStore{store: good.store}
	go h.p.await(good.cfg, opened)
	h.wait("the failure", func(ConfigStatus) bool {
		h.p.late.mu.Lock()
		defer h.p.late.mu.Unlock()
		return h.p.late.why != nil
	})
	if _, err := good.store.Keep(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the store that is not used is not closed: %v", err)
	}
	h.p.changing.Lock()
	h.p.core.Store(&core{engine: good.engine, cfg: good.cfg, staged: !good.staged})
	h.p.changing.Unlock()
	h.wait("the state directory in use", func(ConfigStatus) bool { return h.p.core.Load().store != nil })
}
