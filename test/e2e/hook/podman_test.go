// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"testing"
)

// podmans runs a test under Podman with each runtime.
func podmans(t *testing.T, f func(t *testing.T, h *host, runtime string)) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) { f(t, newHost(t), name) })
	}
}

// At precreate everything is delivered: variable, device with its rule, hook, mount.
func TestPodmanPrecreate(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		dir := h.hooksFile("hooks", "precreate")
		out, err := h.podman(runtime, []string{dir}, h.asks("echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1", "full")...)
		h.wants(out, err, "FANCY=1", "00 00 00 00")
		if _, err := os.Stat(h.path("hook-ran")); err != nil {
			t.Error(err)
		}
		out, err = h.podman(runtime, []string{dir}, h.asks(readDevice, "zero")...)
		h.wants(out, err, "00 00 00 00", "from the host", "read-only")
	})
}

// The stages that every runtime has, alone.
func TestPodmanCreateRuntime(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		dir := h.hooksFile("hooks", "createRuntime", "poststop")
		out, err := h.podman(runtime, []string{dir}, h.asks(readDevice, "zero")...)
		h.wants(out, err, "00 00 00 00", "from the host", "read-only")
		out, err = h.podman(runtime, []string{dir}, append([]string{"--read-only"}, h.asks(readDevice+"; touch /x || echo root is read-only", "zero")...)...)
		h.wants(out, err, "00 00 00 00", "from the host", "root is read-only")
	})
}

func TestPodmanRefused(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		out, err := h.podman(runtime, []string{h.hooksFile("hooks", "precreate")}, h.asks("echo started", "secret")...)
		refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`)
		out, err = h.podman(runtime, []string{h.hooksFile("late", "createRuntime")}, h.asks("echo started", "secret")...)
		if runtime == "runc" {
			refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`)
		} else {
			refused(t, out, err)
			t.Logf("crun: %s", out)
		}
	})
}

// A container that asks for nothing never starts the hook.
func TestPodmanNothing(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		h.write("config.yaml", "what would stop the hook: here\n")
		out, err := h.podman(runtime, []string{h.hooksFile("hooks", "precreate"), h.hooksFile("late", "createRuntime", "poststop")}, h.asks("ls /dev/fancy || echo none")...)
		h.wants(out, err, "none")
	})
}
