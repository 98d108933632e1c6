// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"strings"
	"testing"
)

// readDevice prints four bytes of the device, and the mounted file.
const readDevice = `dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1; cat /opt/data/file; (echo again > /opt/data/file) 2>/dev/null || echo read-only`

// each runs a test with every runtime and stage.
func each(t *testing.T, f func(t *testing.T, h *host, runtime, stage string)) {
	for _, name := range []string{"runc", "crun"} {
		for _, stage := range []string{"createRuntime", "prestart"} {
			t.Run(name+"/"+stage, func(t *testing.T) {
				h := newHost(t)
				f(t, h, h.runtimes()[name], stage)
			})
		}
	}
}

func TestDevice(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, annotations: device("zero"), command: readDevice})
		h.wants(out, err, "00 00 00 00", "from the host", "read-only")
	})
}

// Without the annotation nothing happens, the device is not there, and its number
// cannot be used.
func TestNothing(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, command: "ls /dev/fancy || echo none"})
		h.wants(out, err, "none")
	})
}

func TestSocket(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		h.socket("sock-id")
		out, err := h.run(runtime, container{id: "sock-id", stages: []string{stage},
			command: "sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /var/run/jackfield/devices.json"})
		h.wants(out, err, "hello from vswitch", `"/var/run/jackfield/net/net1/vhost.sock"`)
	})
}

func TestReadOnlyRoot(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		h.socket("ro-id")
		out, err := h.run(runtime, container{id: "ro-id", stages: []string{stage}, annotations: device("zero"), readOnly: true,
			command: readDevice + "; sockclient connect /var/run/jackfield/net/net1/vhost.sock; touch /x || echo root is read-only"})
		h.wants(out, err, "00 00 00 00", "from the host", "hello from vswitch", "root is read-only")
	})
}

func TestUserNamespace(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		// Root in there is nobody in particular out here, and is let at the socket as
		// such.
		h.socket("user-id")
		out, err := h.run(runtime, container{id: "user-id", stages: []string{stage}, annotations: device("zero"), userNS: true,
			command: readDevice + "; sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /proc/self/uid_map"})
		h.wants(out, err, "00 00 00 00", "from the host", "hello from vswitch", "100000")
	})
}

// Both stages, as hooks.d files may have it: the second changes nothing.
func TestTwice(t *testing.T) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.socket("twice-id")
			out, err := h.run(h.runtimes()[name], container{id: "twice-id", stages: []string{"prestart", "createRuntime"}, annotations: device("zero"),
				command: readDevice + "; sockclient connect /var/run/jackfield/net/net1/vhost.sock; grep -c /dev/fancy /proc/self/mountinfo; grep -c net/net1 /proc/self/mountinfo"})
			h.wants(out, err, "00 00 00 00", "hello from vswitch", "\n1\n1\n")
		})
	}
}

// What the policy refuses, and what comes too late, stops the container, and the
// person at the terminal reads why.
func TestRefused(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		out, err := h.run(runtime, container{stages: []string{stage}, annotations: device("secret"), command: "echo started"})
		refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`, `add to allow.cdi of rule "containers"`)
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: device("env"), command: "echo started"})
		refused(t, out, err, `variable "FANCY" comes too late`, "hook.undeliverable: warn")
		// An optional device of which something comes too late is skipped whole.
		optional := map[string]string{"devices.jackfield.dev": "[{device: vendor.example.com/dev=env, optional: true}, vendor.example.com/dev=zero]"}
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: optional, command: readDevice})
		h.wants(out, err, "00 00 00 00")
		h.configure("hook: {undeliverable: warn}\n")
		out, err = h.run(runtime, container{stages: []string{stage}, annotations: device("env"), command: "echo started"})
		h.wants(out, err, "started")
		if !strings.Contains(h.log(), "level=warning") {
			t.Error("nothing in the log of what came too late")
		}
	})
}
