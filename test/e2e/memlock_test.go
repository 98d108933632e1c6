// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// A container with a device of VFIO gets the limit of locked memory of the rule, and its neighbour keeps the runtime's.
func TestLimitOfLockedMemoryComesWithDevice(t *testing.T) {
	e2e.Each(t, func(t *testing.T, h *e2e.H) {
		var before unix.Rlimit
		if err := unix.Prlimit(h.PID(), unix.RLIMIT_MEMLOCK, nil, &before); err != nil {
			t.Fatal(err)
		}
		// Without CAP_SYS_RESOURCE no process can raise a hard limit. The container then gets up to that of the runtime.
		const runtimeLimit, limit = 1 << 20, 4 << 20
		if before.Max < limit {
			t.Skipf("skipped: the hard limit of locked memory is %d bytes", before.Max)
		}
		if err := unix.Prlimit(h.PID(), unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: runtimeLimit, Max: before.Max}, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Prlimit(h.PID(), unix.RLIMIT_MEMLOCK, &before, nil) })
		createHardware(t, h)
		h.StartPlugin(node.PluginOptions{Config: deviceConfig + "      limits: {memlock: 4Mi}\n", Args: []string{"--root", hostRoot}})
		pod := h.RunPod(node.PodOptions{Name: "memlock", Namespace: "dpdk-1"})
		hostDevinfo(h, pod, "pci", "net1", pci(vf1))
		for name, want := range map[string]struct {
			env   []string
			limit int
		}{"with": {[]string{"PCIDEVICE_ACME_COM_VF=" + vf1}, limit}, "without": {nil, runtimeLimit}} {
			ctr := pod.Run(node.ContainerOptions{Name: name, Env: want.env, User: 1000, Group: 1000})
			if got := ctr.Output("sh", "-c", "grep 'locked memory' /proc/1/limits"); !strings.HasPrefix(strings.Join(strings.Fields(got)[3:], " "), fmt.Sprint(want.limit)) {
				t.Errorf("%s: %s", name, got)
			}
			if view := ctr.Output("sh", "-c", "cat $JACKFIELD_DEVICES_FILE || true"); strings.Contains(view, `"memlock": "4Mi"`) != (want.limit == limit) {
				t.Errorf("%s: devices.json has %s", name, view)
			}
		}
	})
}
