// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

// openDevices opens the granted device and another one.
const openDevices = `(: </dev/ctl) && echo opened; mknod /dev/other c 10 237; (: </dev/other) || echo refused`

// With cgroups of version 1, a container can use the granted device and no other.
func TestOnlyGrantedDeviceCanBeUsed(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, annotations: deviceAnnotation("ctl"), command: openDevices})
		h.checkPrinted(out, err, "opened", "refused", "other: Operation not permitted")
	})
}

// The same with version 2, in a mount namespace that has no other hierarchy.
func TestDeviceCgroupUnified(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		useCgroupV2(t, h)
		c := container{stages: []string{stage}, command: "echo started"}
		out, err := h.run(runtime, c)
		h.checkPrinted(out, err, "started")
		c.annotations, c.command = deviceAnnotation("ctl"), openDevices
		out, err = h.run(runtime, c)
		h.checkPrinted(out, err, "opened", "refused", "other: Operation not permitted")
	})
}

// The same under Podman, at every stage.
func TestPodmanDeviceCgroupUnified(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			eachRuntime(t, func(t *testing.T, h *host, runtime string) {
				useCgroupV2(t, h)
				dir := h.hooksFile("hooks", stages...)
				out, err := h.podman(runtime, []string{dir}, append([]string{"--cap-add", "MKNOD",
					// Version 1 uses the controller.
					"--pids-limit", "0"}, h.requestOptions(openDevices, "ctl")...)...)
				h.checkPrinted(out, err, "opened", "refused", "other: Operation not permitted")
			})
		})
	}
}

// useCgroupV2 restricts the test's runtimes to cgroups of version 2.
func useCgroupV2(t *testing.T, h *host) {
	t.Helper()
	h.unified = true
	if hasCapability(t, unix.CAP_SYS_RESOURCE) {
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
