// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// openDevices opens the device that was granted, and one that was not.
const openDevices = `(: </dev/ctl) && echo opened; mknod /dev/other c 10 237; (: </dev/other) || echo refused`

// What is granted can be used, and nothing beside it: under cgroups of version 1.
func TestDeviceCgroup(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, annotations: device("ctl"), command: openDevices})
		h.wants(out, err, "opened", "refused", "other: Operation not permitted")
	})
}

// The same under version 2, in a mount namespace that has nothing else.
func TestDeviceCgroupUnified(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		h.unified = true
		c := container{stages: []string{stage}, command: "echo started"}
		out, err := h.run(runtime, c)
		if err != nil && strings.Contains(out, "RLIM_MEMLOCK") && runtime == h.kit.Crun && !has(t, unix.CAP_SYS_RESOURCE) {
			t.Skipf("skipped: crun raises a limit before it loads a BPF program, which this machine's root may not (no CAP_SYS_RESOURCE): %s", out)
		}
		h.wants(out, err, "started")
		c.annotations, c.command = device("ctl"), openDevices
		out, err = h.run(runtime, c)
		h.wants(out, err, "opened", "refused", "other: Operation not permitted")
	})
}

// has reports whether this process has a capability.
func has(t *testing.T, capability uint) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "CapEff:\t")
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set&(1<<capability) != 0
}
