// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/vswitch"
)

// waitUntil waits until f returns true.
func (h *host) waitUntil(what string, f func() bool) {
	h.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			h.t.Fatalf("waited for %s; the hook's log:\n%s\nthe plugin's:\n%s", what, h.log(), h.read("nri.log"))
		}
	}
}

func (h *host) exists(name string) bool {
	_, err := os.Lstat(h.path(name))
	return err == nil
}

// startKeeper runs jackfield-nri, without a runtime, until stop or the end of the test.
func (h *host) startKeeper() (stop func()) {
	h.t.Helper()
	bin, err := h.common.Command("jackfield-nri")
	if err != nil {
		h.t.Fatal(err)
	}
	log, err := os.OpenFile(h.path("nri.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(bin, "--config", h.path("config.yaml"), "--nri-socket", h.path("nri.sock"))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			h.t.Errorf("jackfield-nri: %v\n%s", err, h.read("nri.log"))
		}
	}
	h.t.Cleanup(stop)
	h.waitUntil("the keeper", func() bool {
		return exec.Command("flock", "--nonblock", h.path("state/hook/keeper"), "true").Run() != nil && h.exists("state/hook/keeper")
	})
	return stop
}

// recreateSocket creates the vswitch's socket again, in a directory that is created again.
func (h *host) recreateSocket(s *vswitch.Server, name string) *vswitch.Server {
	h.t.Helper()
	if s != nil {
		if err := s.Close(); err != nil {
			h.t.Error(err)
		}
		if err := os.RemoveAll(filepath.Dir(s.Path())); err != nil {
			h.t.Fatal(err)
		}
	}
	h.mkdir("sock/port0")
	n, err := vswitch.Listen(vswitch.VhostUser, h.path("sock/port0/vhost.sock"), vswitch.Greeting(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// asksTwice connects, waits until it can connect to a vswitch named second, and prints its answer.
const asksTwice = `C="sockclient connect /var/run/jackfield/net/net1/vhost.sock"; $C; echo > /asked;
for i in $(busybox seq 300); do $C 2>/dev/null | grep second && exit 0; busybox sleep 0.1; done; echo never; exit 1`

// With jackfield-nri on the host, a running container of Podman, runc or crun gets the vswitch's re-created
// socket in a re-created directory, also if jackfield-nri was restarted meanwhile.
func TestRunningContainerGetsRecreatedSocket(t *testing.T) {
	restart := func(t *testing.T, h *host, s *vswitch.Server, stop func(), run func() (string, error)) {
		t.Helper()
		type result struct {
			out string
			err error
		}
		done := make(chan result, 1)
		go func() {
			out, err := run()
			done <- result{out, err}
		}()
		h.waitUntil("the container to connect", func() bool { return h.exists("rootfs/asked") || len(done) > 0 })
		if h.exists("state/hook/ready") {
			if names, err := os.ReadDir(h.path("state/hook/ready")); err != nil || len(names) != 1 {
				t.Errorf("announced: %v, %v", names, err)
			}
		}
		if stop != nil {
			stop()
		}
		s = h.recreateSocket(s, "second")
		if stop != nil {
			h.startKeeper()
		}
		r := <-done
		h.checkPrinted(r.out, r.err, "hello from first", "hello from second")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(h.log(), "by their directories") {
			t.Error("the sockets were not staged")
		}
	}
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		if runtime == h.kit.Crun {
			// Under crun all mounts are private, unless the configuration says otherwise.
			h.propagation = "rslave"
		}
		h.startKeeper()
		s := h.recreateSocket(nil, "first")
		h.network("keep-id", s.Path())
		restart(t, h, s, nil, func() (string, error) {
			return h.run(runtime, container{id: "keep-id", stages: []string{stage}, userNS: stage == "prestart", command: asksTwice})
		})
	})
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run("podman/"+stages[0], func(t *testing.T) {
			eachRuntime(t, func(t *testing.T, h *host, runtime string) {
				if runtime == "crun" && stages[0] != "precreate" {
					t.Log("crun mounts are private: see TestPrivateMountsGetSocketDirectory")
					return
				}
				stop := h.startKeeper()
				dirs := []string{h.hooksFile("hooks", stages...)}
				out, err := h.podmanCommand(runtime, dirs, "create", h.options(append([]string{"--annotation", "networks.jackfield.dev=net1"}, h.requestOptions(asksTwice)...))...)
				h.checkPrinted(out, err)
				id := strings.TrimSpace(out)
				s := h.recreateSocket(nil, "first")
				h.network(id, s.Path())
				restart(t, h, s, stop, func() (string, error) { return h.podmanCommand(runtime, dirs, "start", "--attach", id) })
				out, err = h.podmanCommand(runtime, dirs, "rm", id)
				h.checkPrinted(out, err)
			})
		})
	}
}

// Without jackfield-nri, the container gets the socket's directory, in which a re-created socket appears. The
// log says so.
func TestSocketDirectoryReplacesRebinder(t *testing.T) {
	eachRuntimeAndStage(t, func(t *testing.T, h *host, runtime, stage string) {
		h.propagation = "rslave" // otherwise crun's private mounts are a reason, too
		s := h.recreateSocket(nil, "first")
		h.network("alone-id", s.Path())
		done := make(chan error, 1)
		var out string
		go func() {
			var err error
			out, err = h.run(runtime, container{id: "alone-id", stages: []string{stage}, command: asksTwice})
			done <- err
		}()
		h.waitUntil("the container to connect", func() bool { return h.exists("rootfs/asked") || len(done) > 0 })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = h.recreateSocket(nil, "second")
		err := <-done
		h.checkPrinted(out, err, "hello from first", "hello from second")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(h.log(), "sockets are delivered by their directories: no jackfield-nri runs on this node") {
			t.Errorf("the log does not say so: %s", h.log())
		}
	})
}

// If the runtime gives the container private mounts, the container gets the socket's directory although
// jackfield-nri runs.
func TestPrivateMountsGetSocketDirectory(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		h.startKeeper()
		s := h.recreateSocket(nil, "first")
		h.network("cut-id", s.Path())
		if runtime == "runc" {
			h.propagation = "rprivate"
		}
		out, err := h.run(h.runtimes()[runtime], container{id: "cut-id", stages: []string{"createRuntime"},
			command: "sockclient connect /var/run/jackfield/net/net1/vhost.sock"})
		h.checkPrinted(out, err, "hello from first")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(h.log(), "by their directories: the runtime cuts the container's mounts off") {
			t.Errorf("the log does not say so: %s", h.log())
		}
	})
}

// precreate staged mounts for a container that was then not created. The hook's next run, jackfield-nri and
// `jackfield doctor --fix` remove them.
func TestStaleStagingIsRemoved(t *testing.T) {
	eachRuntime(t, func(t *testing.T, h *host, runtime string) {
		dirs := []string{h.hooksFile("hooks", "precreate")}
		fail := func() bool {
			t.Helper()
			// The image lacks the command: the runtime fails after the hook.
			out, err := h.podmanCommand(runtime, dirs, "create", h.options([]string{"--annotation", "networks.jackfield.dev=net1", "--rootfs", h.rootfs(), "/bin/none"})...)
			h.checkPrinted(out, err)
			id := strings.TrimSpace(out)
			s := h.recreateSocket(nil, "first")
			h.network(id, s.Path())
			if out, err := h.podmanCommand(runtime, dirs, "start", "--attach", id); err == nil {
				t.Fatalf("the container ran: %s", out)
			}
			if out, err := h.podmanCommand(runtime, dirs, "rm", id); err != nil {
				t.Fatal(out, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			record := "state/hook/sandboxes/" + id + "/" + id + ".container"
			if !h.exists(record) {
				return false
			}
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(h.path(record), old, old); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(h.path("state/hook/swept")); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			return true
		}
		left := func() int {
			names, err := os.ReadDir(h.path("state/hook/sandboxes"))
			if err != nil {
				t.Fatal(err)
			}
			return len(names)
		}
		if !fail() {
			// The runtime ran the poststop hook.
			if runtime != "runc" || left() != 0 {
				t.Errorf("%s: no record, and %d sandboxes are left", runtime, left())
			}
			return
		}
		jackfield, err := h.common.Command("jackfield")
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(jackfield, "--config", h.path("config.yaml"), "doctor", "--fix").CombinedOutput()
		if left() != 0 || !strings.Contains(string(out), "of removed containers of the OCI hook") {
			t.Errorf("doctor: %v, %s", err, out)
		}
		fail()
		stop := h.startKeeper()
		h.waitUntil("jackfield-nri to remove it", func() bool { return left() == 0 })
		stop()
		fail()
		s := h.recreateSocket(nil, "first")
		h.network("next", s.Path())
		out2, err := h.run(h.runtimes()[runtime], container{id: "next", stages: []string{"createRuntime"}, command: "echo next"})
		h.checkPrinted(out2, err, "next")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left() != 0 || !strings.Contains(h.log(), "removed leftovers of 1 containers") {
			t.Errorf("the next run of the hook did not remove the staged mounts: %s", h.log())
		}
	})
}
