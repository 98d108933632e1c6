// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackfield/jackfield/pkg/policy"
)

// A state directory responds late. The first configuration does not allow its use, so it is closed. It is
// opened again with the next configuration.
func TestUnusableStateDirectoryIsReopened(t *testing.T) {
	content := fmt.Sprintf(runningConfig, runningRule)
	h := newRunningHost(t, content)
	// The watch reads the file once when it starts. After a change this has happened.
	h.replaceConfigFile(content + "# changed\n")
	h.waitForStatus("the changed file", func(s ConfigStatus) bool { return s.Generation == 2 })
	good := h.p.config.core.Load()
	faulty := *good.cfg
	faulty.Policy.Rules = []policy.Rule{{Name: "r", Allow: policy.Allow{Sockets: []string{"relative"}}}}
	h.p.config.changing.Lock()
	h.p.config.core.Store(&core{engine: good.engine, cfg: &faulty, staged: !good.staged})
	h.p.config.changing.Unlock()
	go h.p.useLateStore(good.cfg, openedStore{store: good.store})
	h.waitForStatus("the failure", func(ConfigStatus) bool {
		h.p.state.mu.Lock()
		defer h.p.state.mu.Unlock()
		return h.p.state.fault != nil
	})
	if _, err := good.store.BecomeRebinder(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the unused store is not closed: %v", err)
	}
	h.p.config.changing.Lock()
	h.p.config.core.Store(&core{engine: good.engine, cfg: good.cfg, staged: !good.staged})
	h.p.config.changing.Unlock()
	h.waitForStatus("the state directory in use", func(ConfigStatus) bool { return h.p.config.core.Load().store != nil })
}
