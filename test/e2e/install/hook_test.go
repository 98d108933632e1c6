// SPDX-License-Identifier: Apache-2.0

package install

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

const hookConfig = `
sockets: {roots: [/var/run/vsw]}
policy:
  rules:
    - name: containers
      for:   {namespaces: [""]}
      allow: {sockets: ["/var/run/vsw/**"]}
`

// asksThrice prints the vswitch's answer each time it changes, until the third.
const asksThrice = `for i in $(busybox seq 1500); do
	now=$(sockclient connect /var/run/jackfield/net/net1/vhost.sock 2>/dev/null)
	case "$now" in "$was"|"") ;; *) was="$now"; echo "$now" >> /heard;; esac
	case "$now" in *third*) exit 0;; esac
	busybox sleep 0.02
done; echo never >&2; exit 1`

// The DaemonSet's jackfield-nri has a mount namespace of its own. It rebinds the sockets of a container that
// runc and the hook created on the host, both of a container that was running when it started and of a later
// one. When the plugin ends, no socket is removed. When the container ends, nothing is left in either
// namespace.
func TestTheDaemonSetKeepsTheHooksSockets(t *testing.T) {
	h := e2e.Fresh(t, node.Options{}) // the version does not matter
	ds := deployed(t, h, "privileged")
	const id, vhost, state = "hooked", "/run/vsw/port1/vhost.sock", "/run/jackfield/hook"
	h.WriteFile("/run/hooked/config.yaml", hookConfig)
	h.MkdirAll("/run/hooked/bundle")
	if err := bundle(h.Kit(), "/run/hooked/bundle", id, "/run/hooked/config.yaml", asksThrice); err != nil {
		t.Fatal(err)
	}
	h.WriteFile("/var/run/k8s.cni.cncf.io/devinfo/cni/ns-fast-"+id+"_net1",
		`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var`+vhost+`"}}`)
	server := h.Vswitch(vswitch.VhostUser, vhost, "first")
	again := func(name string) {
		t.Helper()
		if err := errors.Join(server.Crash(), os.RemoveAll(filepath.Dir(vhost))); err != nil {
			t.Fatal(err)
		}
		server = h.Vswitch(vswitch.VhostUser, vhost, name)
	}
	log := func() string {
		text, _ := os.ReadFile("/run/hooked/bundle/hook.log")
		return string(text)
	}
	heard := func(want string) {
		t.Helper()
		h.Eventually(func() error {
			text, err := os.ReadFile("/run/hooked/bundle/rootfs/heard")
			if err != nil || !strings.HasSuffix(string(text), vswitch.Greeting(want)+"\n") {
				return fmt.Errorf("the container heard %q, %w; want the %s last; the hook logged %s", text, err, want, log())
			}
			return nil
		})
	}

	pod, daemon := start(t, h, ds)
	if own, err := os.Readlink("/proc/self/ns/mnt"); err != nil {
		t.Fatal(err)
	} else if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", daemon.PID())); err != nil || its == own {
		t.Fatalf("the daemon's mount namespace is %s, the host's %s, %v", its, own, err)
	}
	h.Eventually(func() error {
		if !staging.RebinderRunning(hostfs.Host(), state) {
			return errors.New("there is nobody who keeps the hook's sockets")
		}
		return nil
	})
	cmd := h.Command(h.Kit().Runc, "--root", "/run/hooked/oci", "run", "--bundle", "/run/hooked/bundle", id)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Minute
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	heard("first")
	if strings.Contains(log(), "by their directories") {
		t.Errorf("the hook saw nobody who keeps sockets: %s", log())
	}
	waitMetric(t, h, pod, "jackfield_staging_sockets 1")
	again("second")
	heard("second")
	// The plugin stops. The next one finds the container and rebinds a new socket.
	pod.Remove()
	again("third")
	time.Sleep(50 * time.Millisecond)
	if len(ended) > 0 {
		t.Errorf("the third was there before anybody bound it: %v %s", <-ended, out)
	}
	pod, daemon = start(t, h, ds)
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the container: %v: %s", err, out)
		}
	case <-time.After(time.Minute):
		t.Fatal("the container did not end")
	}
	heard("third")

	waitMetric(t, h, pod, "jackfield_staging_sockets 0")
	for _, dir := range []string{"containers", "sandboxes", "ready", "claims"} {
		if names, err := os.ReadDir(filepath.Join(state, dir)); err != nil && !errors.Is(err, fs.ErrNotExist) || len(names) > 0 {
			t.Errorf("%s has %v, %v", dir, names, err)
		}
	}
	for _, of := range []string{"self", fmt.Sprint(daemon.PID())} {
		text, err := os.ReadFile("/proc/" + of + "/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range hostfs.ParseMounts(string(text)) {
			if strings.Contains(m.Point, "/"+id) {
				t.Errorf("process %s has %s still", of, m.Point)
			}
		}
	}
}

// waitMetric waits for a line of the plugin's metrics.
func waitMetric(t *testing.T, h *e2e.H, pod *e2e.Pod, line string) {
	t.Helper()
	status, err := pod.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.Eventually(func() error {
		reply, err := http.Get("http://" + net.JoinHostPort(status.GetNetwork().GetIp(), "9480") + "/metrics")
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		text, err := hostfs.ReadAtMost(reply.Body, 1<<20)
		if err == nil && !strings.Contains(string(text), "\n"+line+"\n") {
			err = fmt.Errorf("the metrics have no line %q:\n%s", line, node.Tail(string(text), 200))
		}
		return err
	})
}
