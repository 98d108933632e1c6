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

// until waits for something, half a minute at most.
func (h *host) until(what string, f func() bool) {
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

// keeper runs jackfield-nri, for which there is no runtime here, until stop or the
// test's end.
func (h *host) keeper() (stop func()) {
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
	h.until("the keeper", func() bool {
		return exec.Command("flock", "--nonblock", h.path("state/hook/keeper"), "true").Run() != nil && h.exists("state/hook/keeper")
	})
	return stop
}

// anew makes the vswitch's socket anew, with its directory.
func (h *host) anew(s *vswitch.Server, name string) *vswitch.Server {
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

// asksTwice connects, waits until it can connect to a vswitch that calls itself
// second, and says so.
const asksTwice = `C="sockclient connect /var/run/jackfield/net/net1/vhost.sock"; $C; echo > /asked;
for i in $(busybox seq 300); do $C 2>/dev/null | grep second && exit 0; busybox sleep 0.1; done; echo never; exit 1`

// With jackfield-nri on the host a running container of Podman's or of plain runc
// and crun gets the socket that the vswitch makes anew, in a directory made anew; also
// when jackfield-nri itself was restarted meanwhile.
func TestKeeper(t *testing.T) {
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
		h.until("the container to connect", func() bool { return h.exists("rootfs/asked") || len(done) > 0 })
		if h.exists("state/hook/ready") {
			if names, err := os.ReadDir(h.path("state/hook/ready")); err != nil || len(names) != 1 {
				t.Errorf("announced: %v, %v", names, err)
			}
		}
		if stop != nil {
			stop()
		}
		s = h.anew(s, "second")
		if stop != nil {
			h.keeper()
		}
		r := <-done
		h.wants(r.out, r.err, "hello from first", "hello from second")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if strings.Contains(h.log(), "by their directories") {
			t.Error("the sockets were not staged")
		}
	}
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		if runtime == h.kit.Crun {
			// Everything is private under crun, unless the configuration says otherwise.
			h.propagation = "rslave"
		}
		h.keeper()
		s := h.anew(nil, "first")
		h.network("keep-id", s.Path())
		restart(t, h, s, nil, func() (string, error) {
			return h.run(runtime, container{id: "keep-id", stages: []string{stage}, userNS: stage == "prestart", command: asksTwice})
		})
	})
	for _, stages := range [][]string{{"precreate"}, {"createRuntime", "poststop"}} {
		t.Run("podman/"+stages[0], func(t *testing.T) {
			podmans(t, func(t *testing.T, h *host, runtime string) {
				if runtime == "crun" && stages[0] != "precreate" {
					t.Log("crun cuts mounts off: see TestCutOff")
					return
				}
				stop := h.keeper()
				dirs := []string{h.hooksFile("hooks", stages...)}
				out, err := h.podmanCommand(runtime, dirs, "create", h.options(append([]string{"--annotation", "networks.jackfield.dev=net1"}, h.asks(asksTwice)...))...)
				h.wants(out, err)
				id := strings.TrimSpace(out)
				s := h.anew(nil, "first")
				h.network(id, s.Path())
				restart(t, h, s, stop, func() (string, error) { return h.podmanCommand(runtime, dirs, "start", "--attach", id) })
				out, err = h.podmanCommand(runtime, dirs, "rm", id)
				h.wants(out, err)
			})
		})
	}
}

// Without it a socket's directory is handed over, in which one that is made anew is
// found, and the log says so.
func TestWithoutKeeper(t *testing.T) {
	each(t, func(t *testing.T, h *host, runtime, stage string) {
		h.propagation = "rslave" // for crun, which else is a reason of its own
		s := h.anew(nil, "first")
		h.network("alone-id", s.Path())
		done := make(chan error, 1)
		var out string
		go func() {
			var err error
			out, err = h.run(runtime, container{id: "alone-id", stages: []string{stage}, command: asksTwice})
			done <- err
		}()
		h.until("the container to connect", func() bool { return h.exists("rootfs/asked") || len(done) > 0 })
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		s = h.anew(nil, "second")
		err := <-done
		h.wants(out, err, "hello from first", "hello from second")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(h.log(), "sockets are delivered by their directories: no jackfield-nri is running here") {
			t.Errorf("not told: %s", h.log())
		}
	})
}

// Where the runtime cuts a container's mounts off from the host's, a socket's directory
// is handed over although somebody would bind it anew.
func TestCutOff(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		h.keeper()
		s := h.anew(nil, "first")
		h.network("cut-id", s.Path())
		if runtime == "runc" {
			h.propagation = "rprivate"
		}
		out, err := h.run(h.runtimes()[runtime], container{id: "cut-id", stages: []string{"createRuntime"},
			command: "sockclient connect /var/run/jackfield/net/net1/vhost.sock"})
		h.wants(out, err, "hello from first")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if !strings.Contains(h.log(), "by their directories: the runtime cuts the container's mounts off") {
			t.Errorf("not told: %s", h.log())
		}
	})
}

// What precreate made for a container that then was not created is removed: by the
// hook's next run, by jackfield-nri, and by `jackfield doctor --fix`.
func TestLeftBehind(t *testing.T) {
	podmans(t, func(t *testing.T, h *host, runtime string) {
		dirs := []string{h.hooksFile("hooks", "precreate")}
		fail := func() bool {
			t.Helper()
			// The command is not in the image: the runtime gives up after the hook.
			out, err := h.podmanCommand(runtime, dirs, "create", h.options([]string{"--annotation", "networks.jackfield.dev=net1", "--rootfs", h.rootfs(), "/bin/none"})...)
			h.wants(out, err)
			id := strings.TrimSpace(out)
			s := h.anew(nil, "first")
			h.network(id, s.Path())
			if out, err := h.podmanCommand(runtime, dirs, "start", "--attach", id); err == nil {
				t.Fatalf("it ran: %s", out)
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
			// It had the poststop hook run.
			if runtime != "runc" || left() != 0 {
				t.Errorf("%s: no record, and %d are left", runtime, left())
			}
			return
		}
		jackfield, err := h.common.Command("jackfield")
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(jackfield, "--config", h.path("config.yaml"), "doctor", "--fix").CombinedOutput()
		if left() != 0 || !strings.Contains(string(out), "of the OCI hook's containers that are gone") {
			t.Errorf("doctor: %v, %s", err, out)
		}
		fail()
		stop := h.keeper()
		h.until("jackfield-nri to remove it", func() bool { return left() == 0 })
		stop()
		fail()
		s := h.anew(nil, "first")
		h.network("next", s.Path())
		out2, err := h.run(h.runtimes()[runtime], container{id: "next", stages: []string{"createRuntime"}, command: "echo next"})
		h.wants(out2, err, "next")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if left() != 0 || !strings.Contains(h.log(), "removed what was left of 1 containers") {
			t.Errorf("the next run left it: %s", h.log())
		}
	})
}
