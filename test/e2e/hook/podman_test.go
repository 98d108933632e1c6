// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/jail"
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

// With a read-only root, at every stage: device, mount and socket.
func TestPodmanReadOnly(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}, {"prestart", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			podmans(t, func(t *testing.T, h *host, runtime string) {
				dirs := []string{h.hooksFile("hooks", stages...)}
				ask := h.asks(readDevice+"; sockclient connect /var/run/jackfield/net/net1/vhost.sock; touch /x || echo root is read-only", "zero")
				out, err := h.podmanCommand(runtime, dirs, "create", h.options(append([]string{"--read-only", "--annotation", "networks.jackfield.dev=net1"}, ask...))...)
				h.wants(out, err)
				id := strings.TrimSpace(out)
				h.socket(id)
				out, err = h.podmanCommand(runtime, dirs, "start", "--attach", id)
				h.wants(out, err, "00 00 00 00", "from the host", "hello from vswitch", "root is read-only")
				out, err = h.podmanCommand(runtime, dirs, "rm", id)
				h.wants(out, err)
			})
		})
	}
}

// A network of the container brings its socket, at precreate and at createRuntime;
// started again it has it again, and when it is removed nothing is left.
func TestPodmanSocket(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			podmans(t, func(t *testing.T, h *host, runtime string) {
				dirs := []string{h.hooksFile("hooks", stages...)}
				ask := h.asks("sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /var/run/jackfield/devices.json; echo SOCKET=$JACKFIELD_NET1_SOCKET")
				out, err := h.podmanCommand(runtime, dirs, "create", h.options(append([]string{"--annotation", "networks.jackfield.dev=net1"}, ask...))...)
				h.wants(out, err)
				id := strings.TrimSpace(out)
				h.socket(id)
				for range 2 {
					out, err = h.podmanCommand(runtime, dirs, "start", "--attach", id)
					h.wants(out, err, "hello from vswitch", `"/var/run/jackfield/net/net1/vhost.sock"`)
					if stages[0] == "precreate" {
						h.wants(out, err, "SOCKET=/var/run/jackfield/net/net1/vhost.sock")
					}
				}
				out, err = h.podmanCommand(runtime, dirs, "rm", id)
				h.wants(out, err)
			})
		})
	}
}

// A network whose socket jackfield-cni decides on, in Podman's own order of things:
// nobody writes a device-info file by hand.
func TestPodmanCNI(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		for name, network := range map[string]string{"behind bridge": "fast", "first": "fast:mac=c2:11:22:33:44:55"} {
			t.Run(stages[0]+"/"+name, func(t *testing.T) {
				podmans(t, func(t *testing.T, h *host, runtime string) {
					h.cniNetwork("fast", name == "first")
					h.socket("nobody")
					ask := h.asks("sockclient connect /var/run/jackfield/net/eth0/vhost.sock; cat /var/run/jackfield/devices.json")
					options := append(h.withNetwork([]string{"--network", network, "--annotation", "networks.jackfield.dev=eth0"}), ask...)
					out, err := h.podmanCommand(runtime, []string{h.hooksFile("hooks", stages...)}, "run", append([]string{"--rm"}, options...)...)
					h.wants(out, err, "hello from vswitch", `"default-fast"`)
					for _, dir := range []string{"devinfo", "cni-state", "leases/fast"} {
						names, err := os.ReadDir(h.path(dir))
						for _, n := range names {
							if n := n.Name(); n[0] != '.' && !strings.Contains(n, "nobody") && n != "lock" && !strings.HasPrefix(n, "last_reserved_ip") {
								t.Errorf("%s: left %s", dir, n)
							}
						}
						if err != nil {
							t.Error(err)
						}
					}
				})
			})
		}
	}
}

// Podman makes the networks of a container that has a user namespace when the container
// is there, after every hook: who asked for one is told that there is none.
func TestPodmanCNIComesTooLate(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			podmans(t, func(t *testing.T, h *host, runtime string) {
				h.cniNetwork("fast", false)
				h.rootfs()
				h.chownTree()
				h.quiet = true
				options := h.withNetwork([]string{"--network", "fast", "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536", "--annotation", "networks.jackfield.dev=eth0"})
				out, err := h.podmanCommand(runtime, []string{h.hooksFile("hooks", stages...)}, "run", append(append([]string{"--rm"}, options...), h.asks("echo started")...)...)
				refused(t, out, err, `network "eth0": no device-info of this pod`)
			})
		})
	}
}

// Each container of a pod is one of its own, below the pod's cgroup: what one has stays
// when another one ends.
func TestPodmanPod(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		dirs := []string{h.hooksFile("hooks", "precreate")}
		pod, err := h.podmanCommand(runtime, dirs, "pod", "create", "--infra=false", "--cgroup-parent", jail.CgroupParent())
		h.wants(pod, err)
		pod = strings.TrimSpace(pod)
		const connect = "sockclient connect /var/run/jackfield/net/net1/vhost.sock"
		create := func(command string) string {
			options := []string{"--pod", pod, "--network", "none", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--security-opt", "seccomp=unconfined"}
			out, err := h.podmanCommand(runtime, dirs, "create", append(append(options, "--annotation", "networks.jackfield.dev=net1"), h.asks(command)...)...)
			h.wants(out, err)
			return strings.TrimSpace(out)
		}
		stays := create("until test -e /go; do busybox sleep 0.1; done; " + connect)
		h.socket(stays)
		out, err := h.podmanCommand(runtime, dirs, "start", stays)
		h.wants(out, err)
		h.quiet = true // it is in use
		goes := create(connect)
		h.network(goes, h.path("sock/port0/vhost.sock"))
		out, err = h.podmanCommand(runtime, dirs, "start", "--attach", goes)
		h.wants(out, err, "hello from vswitch")
		out, err = h.podmanCommand(runtime, dirs, "rm", goes)
		h.wants(out, err)
		h.write("rootfs/go", "")
		out, err = h.podmanCommand(runtime, dirs, "wait", stays)
		h.wants(out, err, "0")
		out, err = h.podmanCommand(runtime, dirs, "logs", stays)
		h.wants(out, err, "hello from vswitch")
		out, err = h.podmanCommand(runtime, dirs, "pod", "rm", "--force", pod)
		h.wants(out, err)
	})
}

func TestPodmanRefused(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		out, err := h.podman(runtime, []string{h.hooksFile("hooks", "precreate")}, h.asks("echo started", "secret")...)
		refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`)
		out, err = h.podman(runtime, []string{h.hooksFile("late", "createRuntime")}, h.asks("echo started", "secret")...)
		refused(t, out, err, `refuse CDI device "vendor.example.com/dev=secret"`, "add to allow.cdi of rule")
		if want := `level=error stage=createRuntime`; !strings.Contains(h.log(), want) {
			t.Errorf("the hook's log has no %q: %s", want, h.log())
		}
		if runtime == "crun" {
			// crun gives hooks a standard error where it is told to.
			out, err = h.podman(runtime, []string{h.path("late")}, append([]string{"--annotation", "run.oci.hooks.stderr=" + h.path("hook.err")}, h.asks("echo started", "secret")...)...)
			refused(t, out, err, "error executing hook", h.hookCommand())
			if got := h.read("hook.err"); !strings.Contains(got, `refuse CDI device "vendor.example.com/dev=secret"`) {
				t.Errorf("run.oci.hooks.stderr: %q", got)
			}
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

// An image asks as its user does: where hook.askedBy is set, only who knows its value.
func TestPodmanAskedBy(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
			h.configure("hook: {askedBy: example.com/devices=our-word}\n")
			dir := h.hooksFile("hooks-"+stages[0], stages...)
			out, err := h.podman(runtime, []string{dir}, h.asks(readDevice, "zero")...)
			refused(t, out, err, "hook.askedBy demands annotation example.com/devices")
			out, err = h.podman(runtime, []string{dir}, append([]string{"--annotation", "example.com/devices=our-word"}, h.asks(readDevice, "zero")...)...)
			h.wants(out, err, "00 00 00 00")
		}
	})
}
