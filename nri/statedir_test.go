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

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
)

// The plugin does not start without its state directory. The error has the directory, the rule and a remedy.
func TestStartFailsWithoutStateDirectory(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(dir string) error
		want    []string
	}{
		"a file": {func(dir string) error { return os.WriteFile(dir, nil, 0o644) },
			[]string{`is a regular file: it must be a directory; remove it, or set another stateDir`}},
		"a parent that is a file": {func(dir string) error {
			return errors.Join(os.Remove(filepath.Dir(dir)), os.WriteFile(filepath.Dir(dir), nil, 0o644))
		}, []string{`not a directory; create it (owner root, mode 0755), or set another stateDir`}},
		"a directory that others can write": {func(dir string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o777))
		},
			[]string{"found mode 0777: it must be writable by its owner alone; run `chmod go-w "}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCopyHost(t)
			testkit.Must(t, os.MkdirAll(h.host.Path("/run/state"), 0o755))
			testkit.Must(t, tc.prepare(h.host.Path("/run/state/jackfield")))
			cfg, err := config.Parse([]byte("stateDir: /run/state/jackfield\n"), config.DefaultPath)
			testkit.Must(t, err)
			log := logrus.New()
			log.SetOutput(&logBuffer{})
			p, err := New(Options{Host: h.host, Config: cfg}, log)
			for _, want := range append(tc.want, "/run/state/jackfield") {
				if p != nil || err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("New returns %v, want %q", err, want)
				}
			}
		})
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
	for h.p.calls.workers.Go(func() { <-unresponsive }) {
	}
	testkit.Must(t, h.p.RemoveContainer(context.Background(), h.pod, h.c))
	if !testkit.Until(func() bool {
		ids, err := h.p.state.store.Load().Containers()
		return err == nil && len(ids) == 0
	}) {
		t.Error("the container's directory is left")
	}
}

// forgetContainers makes the plugin one that has just started: an earlier process wrote the records.
func (h *reloadHost) forgetContainers() {
	t := h.p.containers
	records := t.allRecords()
	t.mu.Lock()
	t.containers, t.sandboxes, t.recorded = map[string]*container{}, map[string]sandbox{}, records
	t.mu.Unlock()
	h.p.records.read(h.p.config.core.Load().cfg.StateDir)
}

// The records of an earlier process stay until the runtime has listed the living containers. Then the records of
// ended containers are removed.
func TestRecordsAreKeptUntilSynchronize(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.listen("run/vsw/1/s")
	h.writeInfo("net1", "client", "/run/vsw/1/s")
	h.create()
	_ = h.p.StartContainer(t.Context(), h.pod, h.c)
	h.p.records.write()
	h.forgetContainers()
	file := filepath.Join(h.root, "run/jackfield/status", h.c.Id)
	h.p.records.write()
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the record is removed before the runtime has reported what lives: %v", err)
	}
	_, err := h.p.Synchronize(t.Context(), []*api.PodSandbox{h.pod}, []*api.Container{h.c})
	testkit.Must(t, err)
	if started := h.p.containers.listStarted(); len(started) != 1 || started[0].ContainerID != h.c.Id {
		t.Errorf("the status has %+v, want the living container", started)
	}
	_, err = h.p.Synchronize(t.Context(), []*api.PodSandbox{h.pod}, nil)
	testkit.Must(t, err)
	h.p.records.write()
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the record of an ended container: %v", err)
	}
}
