// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"strings"
	"testing"
)

// readDevice prints four bytes of the device, and the mounted file.
const readDevice = `dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1; cat /opt/data/file; (echo again > /opt/data/file) 2>/dev/null || echo read-only`

// eachRuntimeAndStage runs a test with every runtime and stage.
func eachRuntimeAndStage(t *testing.T, f func(t *testing.T, h *host, runtime, stage string)) {
	for _, name := range []string{"runc", "crun"} {
		for _, stage := range []string{"createRuntime", "prestart"} {
			t.Run(name+"/"+stage, func(t *testing.T) {
				h := newHost(t)
				f(t, h, h.runtimes()[name], stage)
			})
		}
	}
}

func TestContainerUsesDeviceAndMount(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, annotations: deviceAnnotation("zero"), command: readDevice})
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "read-only")
	})
}

// Without the annotation nothing is injected: the device does not exist, and its number cannot be used.
func TestNoRequestGetsNoDevice(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, command: "ls /dev/fancy || echo none"})
		h.checkPrinted(out, err, "none")
	})
}

func TestContainerConnectsToSocket(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		h.socket("sock-id")
		out, err := h.run(runtime, container{id: "sock-id", stages: []string{stage},
			command: "sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /var/run/jackfield/devices.json"})
		h.checkPrinted(out, err, "hello from vswitch", `"/var/run/jackfield/net/net1/vhost.sock"`)
	})
}

func TestReadOnlyRootGetsDeviceAndSocket(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		h.socket("ro-id")
		out, err := h.run(runtime, container{id: "ro-id", stages: []string{stage}, annotations: deviceAnnotation("zero"), readOnly: true,
			command: readDevice + "; sockclient connect /var/run/jackfield/net/net1/vhost.sock; touch /x || echo root is read-only"})
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "hello from vswitch", "root is read-only")
	})
}

func TestUserNamespaceGetsDeviceAndSocket(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		// Root of the container is an unprivileged user of the host, and gets access to the socket as that
		// user.
		h.socket("user-id")
		out, err := h.run(runtime, container{id: "user-id", stages: []string{stage}, annotations: deviceAnnotation("zero"), userNS: true,
			command: readDevice + "; sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /proc/self/uid_map"})
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "hello from vswitch", "100000")
	})
}

// With the hook at both stages, as hooks.d files may configure, the second run changes nothing.
func TestSecondStageChangesNothing(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.socket("twice-id")
			out, err := h.run(h.runtimes()[name], container{id: "twice-id", stages: []string{"prestart", "createRuntime"}, annotations: deviceAnnotation("zero"),
				command: readDevice + "; sockclient connect /var/run/jackfield/net/net1/vhost.sock; grep -c /dev/fancy /proc/self/mountinfo; grep -c net/net1 /proc/self/mountinfo"})
			h.checkPrinted(out, err, "00 00 00 00", "hello from vswitch", "\n1\n1\n")
		})
	}
}

// A denied request, and edits that the stage cannot deliver, stop the container. The user at the terminal
// reads the reason.
func TestRefusalStopsContainer(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, annotations: deviceAnnotation("secret"), command: "echo started"})
		checkRefused(t, out, err, `deny CDI device "vendor.example.com/dev=secret"`, `add to allow.cdi of rule "containers"`)
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: deviceAnnotation("env"), command: "echo started"})
		checkRefused(t, out, err, `variable "FANCY" cannot be delivered`, "hook.undeliverable: warn")
		// An optional device is skipped completely if the stage cannot deliver one of its edits.
		optional := map[string]string{"devices.jackfield.dev": "[{device: vendor.example.com/dev=env, optional: true}, vendor.example.com/dev=zero]"}
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: optional, command: readDevice})
		h.checkPrinted(out, err, "00 00 00 00")
		h.configure("hook: {undeliverable: warn}\n")
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: deviceAnnotation("env"), command: "echo started"})
		h.checkPrinted(out, err, "started")
		if !strings.Contains(h.log(), "level=warning") {
			t.Error("the log has no warning of the undelivered edit")
		}
	})
}
