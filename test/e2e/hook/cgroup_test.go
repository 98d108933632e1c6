// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
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
		unified(t, h)
		c := container{stages: []string{stage}, command: "echo started"}
		out, err := h.run(runtime, c)
		h.wants(out, err, "started")
		c.annotations, c.command = device("ctl"), openDevices
		out, err = h.run(runtime, c)
		h.wants(out, err, "opened", "refused", "other: Operation not permitted")
	})
}

// And under Podman, at every stage.
func TestPodmanDeviceCgroupUnified(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			podmans(t, func(t *testing.T, h *host, runtime string) {
				unified(t, h)
				dir := h.hooksFile("hooks", stages...)
				out, err := h.podman(runtime, []string{dir}, append([]string{"--cap-add", "MKNOD",
					// The controller is in use in version 1.
					"--pids-limit", "0"}, h.asks(openDevices, "ctl")...)...)
				h.wants(out, err, "opened", "refused", "other: Operation not permitted")
			})
		})
	}
}

// unified gives the test's runtimes version 2 alone.
func unified(t *testing.T, h *host) {
	t.Helper()
	h.unified = true
	if has(t, unix.CAP_SYS_RESOURCE) {
		return
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	if major < 5 || major == 5 && minor < 11 {
		t.Skip("skipped: before Linux 5.11 crun has to raise RLIMIT_MEMLOCK to load a BPF program, which this machine's root may not (no CAP_SYS_RESOURCE)")
	}
}
