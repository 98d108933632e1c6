// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"archive/tar"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// image makes the root file system an image without a registry.
func (h *host) image(runtime string) string {
	h.t.Helper()
	f, err := os.Create(h.path("rootfs.tar"))
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(h.rootfs())); err != nil {
		h.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		h.t.Fatal(err)
	}
	h.trustImages()
	out, err := h.podmanCommand(runtime, nil, "import", "--quiet", h.path("rootfs.tar"), "localhost/test")
	h.checkPrinted(out, err)
	return "localhost/test"
}

// trustImages makes container tools accept images without a signature.
func (h *host) trustImages() {
	h.t.Helper()
	if err := os.MkdirAll("/etc/containers", 0o755); err != nil {
		h.t.Fatal(err)
	}
	h.replace("/etc/containers/policy.json", `{"default":[{"type":"insecureAcceptAnything"}]}`)
}

// Podman's containers have a user namespace, with a given map or a map of Podman's choice. Requests of the
// host's root are delivered to a user without privileges on the host.
func TestPodmanUserNamespace(t *testing.T) {
	const use = readDevice + "; (: </dev/ctl) && echo opened; sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /proc/self/uid_map"
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}, {"prestart", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			eachRuntime(t, func(t *testing.T, h *host, runtime string) {
				dirs := []string{h.hooksFile("hooks", stages...)}
				for mode, options := range map[string][]string{
					"uidmap": {"--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536", "--rootfs", h.rootfs()},
					"auto":   {"--userns", "auto", h.image(runtime)},
				} {
					if mode == "uidmap" {
						h.chownTree()
					} else {
						h.replace("/etc/subuid", "containers:200000:131072\n")
						h.replace("/etc/subgid", "containers:200000:131072\n")
					}
					args := append([]string{"--annotation", "networks.jackfield.dev=net1", "--annotation", podmanAnnotation("zero", "ctl")}, options...)
					out, err := h.podmanCommand(runtime, dirs, "create", h.options(append(args, "/bin/sh", "-c", use))...)
					h.checkPrinted(out, err)
					id := strings.TrimSpace(out)
					h.socket(id)
					if err := os.Chmod(h.path("sock/port0/vhost.sock"), 0o666); err != nil {
						t.Fatal(err)
					}
					out, err = h.podmanCommand(runtime, dirs, "start", "--attach", id)
					h.checkPrinted(out, err, "00 00 00 00", "from the host", "read-only", "opened", "hello from vswitch", "00000 ")
					out, err = h.podmanCommand(runtime, dirs, "rm", id)
					h.checkPrinted(out, err)
					if err := os.RemoveAll(filepath.Dir(h.path("sock/port0/vhost.sock"))); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// The stage prestart under Podman, alone and together with createRuntime, which then changes nothing.
func TestPodmanPrestartDeliversOnce(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		alone := h.hooksFile("alone", "prestart", "poststop")
		out, err := h.podman(runtime, []string{alone}, append([]string{"--read-only"}, h.requestOptions(readDevice+"; touch /x || echo root is read-only", "zero")...)...)
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "root is read-only")
		both := h.hooksFile("both", "prestart", "createRuntime", "poststop")
		out, err = h.podman(runtime, []string{both}, h.requestOptions(readDevice+"; grep -c /dev/fancy /proc/self/mountinfo; grep -c /opt/data /proc/self/mountinfo", "zero")...)
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "\n1\n1\n")
		out, err = h.podman(runtime, []string{alone}, h.requestOptions("echo started", "secret")...)
		checkRefused(t, out, err)
		if !strings.Contains(out+h.log(), "deny CDI device") {
			t.Errorf("printed %q", out)
		}
	})
}

// Under Podman, a container can use the granted device and no other: the device cgroup, at every stage.
func TestPodmanDeviceCgroup(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}, {"prestart", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			eachRuntime(t, func(t *testing.T, h *host, runtime string) {
				dir := h.hooksFile("hooks", stages...)
				out, err := h.podman(runtime, []string{dir}, append([]string{"--cap-add", "MKNOD"}, h.requestOptions(openDevices, "ctl")...)...)
				h.checkPrinted(out, err, "opened", "refused", "other: Operation not permitted")
			})
		})
	}
}
