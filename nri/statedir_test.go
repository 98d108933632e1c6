// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/busytest"
)

// A state directory answers late and cannot be opened. It is opened again until it can be.
func TestUnusableStateDirectoryIsReopened(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	store, cfg := h.p.state.store.Swap(nil), h.p.config.core.Load().cfg
	check(t, store.Close())
	dir := filepath.Join(h.root, "run/jackfield")
	check(t, os.Rename(dir, dir+".away"))
	check(t, os.WriteFile(dir, nil, 0o644)) // a file in place of the directory
	go func() {
		store, err := h.p.openStore(cfg)
		h.p.useLateStore(cfg, store, err)
	}()
	h.waitForStatus("the failure", func(ConfigStatus) bool {
		h.p.state.mu.Lock()
		defer h.p.state.mu.Unlock()
		return h.p.state.fault != nil
	})
	if err := h.p.storeFault(cfg); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("a container that needs the directory is refused with %v", err)
	}
	check(t, os.Remove(dir))
	check(t, os.Rename(dir+".away", dir))
	h.waitForStatus("the state directory in use", func(ConfigStatus) bool { return h.p.state.store.Load() != nil })
}

// What ended while the state directory could not be used is removed when it can be, and nothing else is.
func TestLateStateDirectoryLosesWhatEnded(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	h.create()
	ended := h.c
	h.c = &api.Container{Id: strings.Repeat("c", 64), PodSandboxId: h.pod.Id, Name: "d"}
	h.create()
	_, err := h.p.Synchronize(t.Context(), []*api.PodSandbox{h.pod}, []*api.Container{ended, h.c})
	check(t, err)
	for _, id := range []string{ended.Id, h.c.Id} { // not a moment ago
		record := filepath.Join(h.root, "run/jackfield/sandboxes", h.pod.Id, id+".container")
		check(t, os.Chtimes(record, time.Now(), time.Now().Add(-time.Hour)))
	}
	store := h.p.state.store.Swap(nil)
	check(t, h.p.RemoveContainer(t.Context(), h.pod, ended))
	h.p.useLateStore(h.p.config.core.Load().cfg, store, nil)
	if left, err := store.Containers(); err != nil || len(left) != 1 || left[0] != h.c.Id {
		t.Errorf("in the state directory: %q, %v; want only the container that lives", left, err)
	}
}

// A store that is opened after the plugin's end is closed.
func TestStoreAfterCloseIsClosed(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	store := h.p.state.store.Swap(nil)
	h.p.end()
	h.p.useLateStore(h.p.config.core.Load().cfg, store, nil)
	if _, err := store.BecomeRebinder(); !errors.Is(err, os.ErrClosed) || h.p.state.store.Load() != nil {
		t.Errorf("the unused store is not closed: %v", err)
	}
}

// While every worker hangs, a container ends. What was created for it is removed nevertheless.
func TestContainerThatEndsWhileWorkersHangLeavesNothing(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	h.create()
	unresponsive := make(chan struct{})
	defer close(unresponsive)
	for h.p.workers.Go(func() { <-unresponsive }) {
	}
	check(t, h.p.RemoveContainer(context.Background(), h.pod, h.c))
	if !busytest.Until(func() bool {
		ids, err := h.p.state.store.Load().Containers()
		return err == nil && len(ids) == 0
	}) {
		t.Error("the container's directory is left")
	}
}
