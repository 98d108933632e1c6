// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// build runs `buildah bud` of an image with a single step that runs a command.
func (h *host) build(runtime, from, command string, options ...string) (string, error) {
	h.t.Helper()
	h.write("context/Dockerfile", "FROM "+from+"\nRUN "+command+"\n")
	return h.buildah(append(append([]string{"bud", "--runtime", runtime, "--isolation", "oci", "--network", "none",
		"--cgroup-parent", jail.CgroupParent() + "/buildah"}, options...), h.path("context"))...)
}

func (h *host) buildah(args ...string) (string, error) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.kit.Buildah, append([]string{"--root", h.path("podman/root"), "--runroot", h.path("podman/run"), "--storage-driver", "vfs"}, args...)...)
	cmd.Env = append(os.Environ(), "CONTAINERS_CONF="+h.path("containers.conf"), "CONTAINERS_STORAGE_CONF="+h.path("storage.conf"), "HOME=/root")
	return h.output(cmd)
}

// Buildah's containers get devices through the wrapper of docs/reference/oci-hook.md, and a refusal ends
// the build. Jackfield cannot use the hooks of Buildah: Buildah refuses a file that names the stage
// precreate, and the state that it passes at other stages has no annotations.
func TestBuildahGetsDevicesThroughWrapper(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, name string) {
		image, runtime := h.image(name), h.runtimes()[name]
		const use = "echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1"
		out, err := h.build(h.wrapper(runtime, "vendor.example.com/dev=full"), image, use)
		h.checkPrinted(out, err, "FANCY=1", "00 00 00 00")
		if _, err := os.Stat(h.path("hook-ran")); err != nil {
			t.Error(err)
		}
		out, err = h.build(h.wrapper(runtime, "vendor.example.com/dev=secret", "--config", h.path("config.yaml")), image, "echo started")
		checkRefused(t, out, err, `deny CDI device "vendor.example.com/dev=secret"`)

		out, err = h.build(runtime, image, "echo started", "--hooks-dir", h.hooksFile("early", "precreate"))
		checkRefused(t, out, err, `unknown stage "precreate"`)
		// hooks.d files compare their conditions with the annotations of the image.
		out, err = h.buildah("from", "--name", "asking", image)
		h.checkPrinted(out, err)
		out, err = h.buildah("config", "--annotation", "devices.jackfield.dev=vendor.example.com/dev=zero", "asking")
		h.checkPrinted(out, err)
		out, err = h.buildah("commit", "--quiet", "asking", "localhost/asking")
		h.checkPrinted(out, err)
		out, err = h.buildah("rm", "asking")
		h.checkPrinted(out, err)
		out, err = h.build(runtime, "localhost/asking", "ls /dev/fancy || echo none", "--hooks-dir", h.hooksFile("late", "createRuntime"))
		h.checkPrinted(out, err, "none")
	})
}
