// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// eachRuntime runs a test under Podman with each runtime.
func eachRuntime(t *testing.T, f func(t *testing.T, h *host, runtime string)) {
	for _, name := range []string{"runc", "crun"} {
		t.Run(name, func(t *testing.T) { f(t, newHost(t), name) })
	}
}

// At precreate everything is delivered: variable, device with its rule, hook and mount.
func TestPodmanPrecreateDeliversAll(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		dir := h.hooksFile("hooks", "precreate")
		out, err := h.podman(runtime, []string{dir}, h.requestOptions("echo FANCY=$FANCY; dd if=/dev/fancy bs=4 count=1 2>/dev/null | od -An -tx1", "full")...)
		h.checkPrinted(out, err, "FANCY=1", "00 00 00 00")
		if _, err := os.Stat(h.path("hook-ran")); err != nil {
			t.Error(err)
		}
		out, err = h.podman(runtime, []string{dir}, h.requestOptions(readDevice, "zero")...)
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "read-only")
	})
}

// Only the stages that every runtime has.
func TestPodmanCreateRuntime(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		dir := h.hooksFile("hooks", "createRuntime", "poststop")
		out, err := h.podman(runtime, []string{dir}, h.requestOptions(readDevice, "zero")...)
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "read-only")
		out, err = h.podman(runtime, []string{dir}, append([]string{"--read-only"}, h.requestOptions(readDevice+"; touch /x || echo root is read-only", "zero")...)...)
		h.checkPrinted(out, err, "00 00 00 00", "from the host", "root is read-only")
	})
}

// With a read-only root, device, mount and socket are delivered at every stage.
func TestPodmanReadOnlyRootGetsAll(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}, {"prestart", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			eachRuntime(t, func(t *testing.T, h *host, runtime string) {
				dirs := []string{h.hooksFile("hooks", stages...)}
				ask := h.requestOptions(readDevice+"; sockclient connect /var/run/jackfield/net/net1/vhost.sock; touch /x || echo root is read-only", "zero")
				out, err := h.podmanCommand(runtime, dirs, "create", h.options(append([]string{"--read-only", "--annotation", "networks.jackfield.dev=net1"}, ask...))...)
				h.checkPrinted(out, err)
				id := strings.TrimSpace(out)
				h.socket(id)
				out, err = h.podmanCommand(runtime, dirs, "start", "--attach", id)
				h.checkPrinted(out, err, "00 00 00 00", "from the host", "hello from vswitch", "root is read-only")
				out, err = h.podmanCommand(runtime, dirs, "rm", id)
				h.checkPrinted(out, err)
			})
		})
	}
}

// A container gets the socket of its network at precreate and at createRuntime, also when it is started
// again. Nothing is left when it is removed.
func TestPodmanGetsSocketAtEachStart(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			eachRuntime(t, func(t *testing.T, h *host, runtime string) {
				dirs := []string{h.hooksFile("hooks", stages...)}
				ask := h.requestOptions("sockclient connect /var/run/jackfield/net/net1/vhost.sock; cat /var/run/jackfield/devices.json; echo SOCKET=$JACKFIELD_NET1_SOCKET")
				out, err := h.podmanCommand(runtime, dirs, "create", h.options(append([]string{"--annotation", "networks.jackfield.dev=net1"}, ask...))...)
				h.checkPrinted(out, err)
				id := strings.TrimSpace(out)
				h.socket(id)
				for range 2 {
					out, err = h.podmanCommand(runtime, dirs, "start", "--attach", id)
					h.checkPrinted(out, err, "hello from vswitch", `"/var/run/jackfield/net/net1/vhost.sock"`)
					if stages[0] == "precreate" {
						h.checkPrinted(out, err, "SOCKET=/var/run/jackfield/net/net1/vhost.sock")
					}
				}
				out, err = h.podmanCommand(runtime, dirs, "rm", id)
				h.checkPrinted(out, err)
			})
		})
	}
}

// jackfield-cni chooses the socket of a network and writes the device-info file, in the order in which Podman
// runs the plugins.
func TestPodmanGetsSocketOfCNINetwork(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		for name, network := range map[string]string{"behind bridge": "fast", "first": "fast:mac=c2:11:22:33:44:55"} {
			t.Run(stages[0]+"/"+name, func(t *testing.T) {
				eachRuntime(t, func(t *testing.T, h *host, runtime string) {
					h.cniNetwork("fast", name == "first")
					h.socket("nobody")
					ask := h.requestOptions("sockclient connect /var/run/jackfield/net/eth0/vhost.sock; cat /var/run/jackfield/devices.json")
					options := append(h.withNetwork([]string{"--network", network, "--annotation", "networks.jackfield.dev=eth0"}), ask...)
					out, err := h.podmanCommand(runtime, []string{h.hooksFile("hooks", stages...)}, "run", append([]string{"--rm"}, options...)...)
					h.checkPrinted(out, err, "hello from vswitch", `"name": "fast"`)
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

// For a container with a user namespace, Podman creates networks after all hooks. A container that requests
// one is refused, because the network is missing.
func TestPodmanCNIWithUserNS(t *testing.T) {
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run(stages[0], func(t *testing.T) {
			eachRuntime(t, func(t *testing.T, h *host, runtime string) {
				h.cniNetwork("fast", false)
				h.rootfs()
				h.chownTree()
				h.quiet = true
				options := h.withNetwork([]string{"--network", "fast", "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536", "--annotation", "networks.jackfield.dev=eth0"})
				out, err := h.podmanCommand(runtime, []string{h.hooksFile("hooks", stages...)}, "run", append(append([]string{"--rm"}, options...), h.requestOptions("echo started")...)...)
				checkRefused(t, out, err, `network "eth0": no device-info of this pod`)
			})
		})
	}
}

// Each container of a pod, below the pod's cgroup, is separate: a container keeps its devices and sockets
// when another one ends.
func TestPodmanPodContainersAreSeparate(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		dirs := []string{h.hooksFile("hooks", "precreate")}
		pod, err := h.podmanCommand(runtime, dirs, "pod", "create", "--infra=false", "--cgroup-parent", jail.CgroupParent())
		h.checkPrinted(pod, err)
		pod = strings.TrimSpace(pod)
		const connect = "sockclient connect /var/run/jackfield/net/net1/vhost.sock"
		create := func(command string) string {
			options := []string{"--pod", pod, "--network", "none", "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--security-opt", "seccomp=unconfined"}
			out, err := h.podmanCommand(runtime, dirs, "create", append(append(options, "--annotation", "networks.jackfield.dev=net1"), h.requestOptions(command)...)...)
			h.checkPrinted(out, err)
			return strings.TrimSpace(out)
		}
		stays := create("until test -e /go; do busybox sleep 0.1; done; " + connect)
		h.socket(stays)
		out, err := h.podmanCommand(runtime, dirs, "start", stays)
		h.checkPrinted(out, err)
		h.quiet = true // the root file system is in use
		goes := create(connect)
		h.network(goes, h.path("sock/port0/vhost.sock"))
		out, err = h.podmanCommand(runtime, dirs, "start", "--attach", goes)
		h.checkPrinted(out, err, "hello from vswitch")
		out, err = h.podmanCommand(runtime, dirs, "rm", goes)
		h.checkPrinted(out, err)
		h.write("rootfs/go", "")
		out, err = h.podmanCommand(runtime, dirs, "wait", stays)
		h.checkPrinted(out, err, "0")
		out, err = h.podmanCommand(runtime, dirs, "logs", stays)
		h.checkPrinted(out, err, "hello from vswitch")
		out, err = h.podmanCommand(runtime, dirs, "pod", "rm", "--force", pod)
		h.checkPrinted(out, err)
	})
}

func TestPodmanPrintsRefusal(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		out, err := h.podman(runtime, []string{h.hooksFile("hooks", "precreate")}, h.requestOptions("echo started", "secret")...)
		checkRefused(t, out, err, `deny CDI device "vendor.example.com/dev=secret"`)
		out, err = h.podman(runtime, []string{h.hooksFile("late", "createRuntime")}, h.requestOptions("echo started", "secret")...)
		checkRefused(t, out, err, `deny CDI device "vendor.example.com/dev=secret"`, "add to allow.cdi of rule")
		if want := `level=error stage=createRuntime`; !strings.Contains(h.log(), want) {
			t.Errorf("the hook's log has no %q: %s", want, h.log())
		}
		if runtime == "crun" {
			// crun gives hooks a standard error only if an annotation says so.
			out, err = h.podman(runtime, []string{h.path("late")}, append([]string{"--annotation", "run.oci.hooks.stderr=" + h.path("hook.err")}, h.requestOptions("echo started", "secret")...)...)
			checkRefused(t, out, err, "error executing hook", h.hookCommand())
			if got := h.read("hook.err"); !strings.Contains(got, `deny CDI device "vendor.example.com/dev=secret"`) {
				t.Errorf("run.oci.hooks.stderr: %q", got)
			}
		}
	})
}

// A container without a request never starts the hook.
func TestPodmanWithoutRequestRunsNoHook(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		h.write("config.yaml", "what would stop the hook: here\n")
		out, err := h.podman(runtime, []string{h.hooksFile("hooks", "precreate"), h.hooksFile("late", "createRuntime", "poststop")}, h.requestOptions("ls /dev/fancy || echo none")...)
		h.checkPrinted(out, err, "none")
	})
}

// An image's annotations count like the user's. If hook.askedBy is set, only requests with its value count.
func TestPodmanImageCannotAskForDevices(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
			h.configure("hook: {askedBy: example.com/devices=our-word}\n")
			dir := h.hooksFile("hooks-"+stages[0], stages...)
			out, err := h.podman(runtime, []string{dir}, h.requestOptions(readDevice, "zero")...)
			checkRefused(t, out, err, "hook.askedBy also requires annotation example.com/devices")
			out, err = h.podman(runtime, []string{dir}, append([]string{"--annotation", "example.com/devices=our-word"}, h.requestOptions(readDevice, "zero")...)...)
			h.checkPrinted(out, err, "00 00 00 00")
		}
	})
}
