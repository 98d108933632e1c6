// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/nri"
	"github.com/jackfield/jackfield/internal/deliver/nri/capability"
	"github.com/jackfield/jackfield/internal/edit"
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

// openForAll opens a node for reading, for writing, and for both, and prints which of them the device cgroup denies.
const openForAll = `for how in '<' '>' '<>'; do
  case $(eval "(: $how /dev/node)" 2>&1) in *"not permitted"*) echo "$how denied";; *) echo "$how allowed";; esac
done`

// A node that the NRI plugin adds can be opened with the permissions of its CDI device and no others. crun on cgroup v2
// compares an open for reading and writing with one rule as a whole.
func TestAdjustmentGrantsExactPermissions(t *testing.T) {
	devices := map[string]edit.Device{
		"character": {Path: "/dev/node", Type: "c", Major: 10, Minor: 229},
		"block":     {Path: "/dev/node", Type: "b", Major: 7, Minor: 77},
	}
	want := map[string]string{
		"r": "< allowed\n> denied\n<> denied", "w": "< denied\n> allowed\n<> denied", "rw": "< allowed\n> allowed\n<> allowed",
		"none": "< denied\n> denied\n<> denied", "": "< allowed\n> allowed\n<> allowed",
	}
	for _, runtime := range []string{"runc", "crun"} {
		for _, version := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/v%d", runtime, version), func(t *testing.T) {
				h := newHost(t)
				if version == 2 {
					useCgroupV2(t, h)
				}
				for kind, device := range devices {
					for device.Access = range want {
						adjust, err := nri.Adjustment(&edit.Set{Devices: []edit.Device{device}}, capability.Capabilities{DeviceRules: true})
						if err != nil {
							t.Fatal(err)
						}
						out, err := h.run(h.runtimes()[runtime], container{command: openForAll, adjust: adjust})
						if err != nil || strings.TrimSpace(out) != want[device.Access] {
							t.Errorf("%s device with %q: %q, %v; want %q", kind, device.Access, out, err, want[device.Access])
						}
					}
				}
			})
		}
	}
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
