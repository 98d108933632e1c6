// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// configureAsPreinstalled calls Configure as containerd does for a plugin that it started.
func (h *runningHost) configureAsPreinstalled(version string) {
	h.t.Helper()
	h.p.opts.Inherited = true
	_, err := h.p.Configure(context.Background(), "", "containerd", version)
	testkit.Must(h.t, err)
}

// containerd 1.7.24 calls Synchronize for no plugin that it started; later versions do.
func TestPreinstalledPluginIsReadyWithoutSynchronize(t *testing.T) {
	for version, want := range map[string]int{"1.7.24~ds1": 200, "2.1.9": 503} {
		h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
		h.configureAsPreinstalled(version)
		r := httptest.NewRecorder()
		h.p.endpoints.serveReady(r, nil)
		if r.Code != want {
			t.Errorf("containerd %s: readyz answers %d, want %d", version, r.Code, want)
		}
	}
}

// A sandbox is gone if no process has its ID and it is old. All others keep what they have.
func TestOnlySandboxesWithoutProcessAreSwept(t *testing.T) {
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule))
	h.configureAsPreinstalled("1.7.24")
	ids := map[string]string{"shim": strings.Repeat("1", 64), "cgroup": strings.Repeat("2", 64),
		"young": strings.Repeat("3", 64), "gone": strings.Repeat("4", 64)}
	old := time.Now().Add(-time.Hour)
	for name, id := range ids {
		h.pod = &api.PodSandbox{Id: id, Namespace: "ns", Name: name}
		h.c = &api.Container{Id: strings.Repeat("c", 63) + id[:1], PodSandboxId: id, Name: "c"}
		h.listen("run/vsw/" + name + "/s")
		h.writeInfo("net1", "client", "/run/vsw/"+name+"/s")
		h.create()
	}
	age := func() { // an update of a container makes its record new
		for name, id := range ids {
			if name != "young" {
				_ = os.Chtimes(filepath.Join(h.root, "run/jackfield/sandboxes", id), old, old)
			}
		}
	}
	h.p.records.write()
	for pid, file := range map[string][2]string{
		"10": {"cmdline", "shim\x00-id\x00" + ids["shim"]},
		"11": {"cgroup", "0::/k/cri-" + strings.Repeat("c", 63) + "2.scope"},
	} {
		testkit.Must(t, os.MkdirAll(filepath.Join(h.root, "proc", pid), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(h.root, "proc", pid, file[0]), []byte(file[1]), 0o644))
	}
	h.forgetContainers()
	h.p.containers.restoreRecorded()
	staged := func(id string) bool {
		_, err := os.Stat(filepath.Join(h.root, "run/jackfield/containers", strings.Repeat("c", 63)+id[:1]))
		return err == nil
	}
	if !testkit.Until(func() bool {
		age()
		h.p.restored.wake.send()
		return !staged(ids["gone"]) && len(h.p.containers.listStarted()) == 3
	}) {
		t.Errorf("the gone sandbox is staged: %v; the status has %d containers, want 3",
			staged(ids["gone"]), len(h.p.containers.listStarted()))
	}
	for _, name := range []string{"shim", "cgroup", "young"} {
		if !staged(ids[name]) {
			t.Errorf("%s: the staging directory of a living container was removed", name)
		}
	}
}
