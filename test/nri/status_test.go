// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/nri"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

func (n *node) host() hostfs.Root {
	n.t.Helper()
	host, err := hostfs.New(n.dir)
	check(n.t, err)
	return host
}

// status asks the plugin until ok.
func (n *node) status(what string, ok func(s *status.Node) bool) *status.Node {
	n.t.Helper()
	var s *status.Node
	eventually(n.t, what, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), testkit.Hangs)
		defer cancel()
		var err error
		s, err = status.Get(ctx, n.host(), "/run/jackfield")
		return err == nil && ok(s)
	})
	return s
}

func containers(n int) func(s *status.Node) bool {
	return func(s *status.Node) bool { return len(s.Containers) == n }
}

func TestStatusListsInjectedEdits(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	pod := nritest.NewPod("dpdk-1", "p", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
	n.devinfo(pod, "vhost-net", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`)
	check(t, n.runtime.RunPodSandbox(context.Background(), pod))
	c := n.mustCreate(pod)
	n.mustCreate(n.pod("dpdk-1", nil)) // given nothing
	s := n.status("one container", containers(1))
	got := s.Containers[0]
	if !strings.Contains(s.Config.Text, "policy:") {
		t.Errorf("the configuration in force is %q", s.Config.Text)
	}
	if !s.Registered || s.Runtime == nil || s.Runtime.Name == "" || s.Config.Generation != 1 || s.PID != os.Getpid() {
		t.Errorf("the daemon tells of itself: %+v", s)
	}
	if got.ContainerID != c.Container.Id || got.Sandbox != pod.Id || got.Namespace != "dpdk-1" || got.Pod != "p" || got.Container != "c" || len(got.Requests) != 2 {
		t.Errorf("the container is %+v", got)
	}
	device := status.Edit{Kind: "device", Name: "/dev/net-a", What: "device /dev/net-a", Request: `CDI device "vendor.com/net=a"`, File: "/etc/cdi/vendor.json",
		Field: "devices[0].containerEdits.deviceNodes[0]", Rule: "dpdk-tenants"}
	if r := got.Requests[0]; r.Kind != "cdi" || r.Name != "vendor.com/net=a" {
		t.Errorf("the first request is %+v", r)
	}
	found := false
	for _, e := range got.Edits {
		found = found || e == device
	}
	if !found {
		t.Errorf("no %+v in %+v", device, got.Edits)
	}

	// The command says the same to a person, and finds the pod by its name.
	var out, msg bytes.Buffer
	run := func(args ...string) int {
		out.Reset()
		msg.Reset()
		return cli.Run(context.Background(), append([]string{"status", "--root", n.dir}, args...), cli.Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &msg, Getenv: os.Getenv})
	}
	if code := run(); code != 0 {
		t.Errorf("exit status %d: %s", code, &msg)
	}
	for _, want := range []string{"registered with", "dpdk-1/p/c  " + c.Container.Id, `CDI device "vendor.com/net=a": injected`, "rule    dpdk-tenants", "device  /dev/net-a",
		`network "dpdk-1/vhost-net" on net1: injected`, "env    JACKFIELD_DEVICES_FILE"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the command does not say %q:\n%s", want, &out)
		}
	}
	if code := run("dpdk-1/p", "-o", "json"); code != 0 || !json.Valid(out.Bytes()) {
		t.Errorf("exit status %d: %s%s", code, &out, &msg)
	}
	if code := run("-n", "dpdk-1"); code != 0 || !strings.Contains(out.String(), "dpdk-1/p/c") || strings.Contains(out.String(), "registered with") {
		t.Errorf("exit status %d: %s%s", code, &out, &msg)
	}
	if code := run("p", "-n", "other"); code != 1 || !strings.Contains(msg.String(), "nothing is injected into a running container of p in namespace other") {
		t.Errorf("exit status %d: %s%s", code, &out, &msg)
	}
	if code := run("other/p"); code != 1 || !strings.Contains(msg.String(), "nothing is injected into a running container of other/p") {
		t.Errorf("exit status %d: %s", code, &msg)
	}

	check(t, n.runtime.RemoveContainer(context.Background(), pod, c.Container))
	n.status("no container", containers(0))
	eventually(t, "no record", func() bool { return n.records() == 0 })
	if code := run(); code != 0 || !strings.Contains(out.String(), "0 running with injected devices or sockets") {
		t.Errorf("exit status %d: %s", code, &out)
	}

	// A pod's end takes what its containers were given, where nobody says that they
	// have ended.
	n.mustCreate(pod)
	n.status("another container", containers(1))
	check(t, n.runtime.RemovePodSandbox(context.Background(), pod))
	n.status("no container after the pod", containers(0))
	eventually(t, "no record after the pod", func() bool { return n.records() == 0 })
}

func (n *node) records() int {
	entries, _ := os.ReadDir(n.path("/run/jackfield/status"))
	return len(entries)
}

// After a restart of the plugin the status has the living containers from their records. Records of
// others are removed, and what is no record is reported.
func TestStatusSurvivesRestart(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	n.write("/etc/cdi/vendor.json", cdiSpec)
	ask := map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	create := func() *nritest.Created {
		pod := n.pod("dpdk-1", ask)
		return n.mustCreate(pod)
	}
	lives, dies := create(), create()
	n.status("two containers", containers(2))
	eventually(t, "two records", func() bool { return n.records() == 2 })
	check(t, os.WriteFile(n.path("/run/jackfield/status/"+strings.Repeat("f", 64)), []byte("{"), 0o600))
	check(t, os.WriteFile(n.path("/run/jackfield/status/.half"), []byte("{"), 0o600))

	n.another(t, func() { n.runtime.Forget(dies.Container.PodSandboxId) })
	s := n.status("the daemon's successor", func(s *status.Node) bool { return len(s.Containers) == 1 && s.Registered })
	if s.Containers[0].ContainerID != lives.Container.Id || len(s.Containers[0].Edits) == 0 {
		t.Errorf("after the restart: %+v", s.Containers)
	}
	eventually(t, "only one record", func() bool { return n.records() == 1 })
}

// another stops the plugin, changes something, and starts one in its place.
func (n *node) another(t *testing.T, change func()) {
	t.Helper()
	n.anotherWith(t, policyYAML, change)
}

// anotherWith is another, with a configuration of its own.
func (n *node) anotherWith(t *testing.T, yaml string, change func()) {
	t.Helper()
	n.stop()
	// The runtime notices at its next request, which it may fail.
	pod := nritest.NewPod("none", "p", nil)
	_ = n.runtime.RunPodSandbox(context.Background(), pod)
	n.runtime.Forget(pod.Id)
	change()
	cfg, err := config.Parse([]byte(yaml), "/etc/jackfield/config.yaml")
	check(t, err)
	log := logrus.New()
	log.SetOutput(io.MultiWriter(n.log))
	p, err := nri.New(nri.Options{Host: n.host(), Config: cfg, ConfigGiven: true, Socket: n.runtime.SocketPath()}, log)
	check(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		check(t, <-done)
		check(t, p.Close())
	})
	n.wait()
}

// Only root can query the status. A peer that reads nothing blocks no other.
func TestStatusSocketAdmitsOnlyRoot(t *testing.T) {
	n := newNode(t, policyYAML, nritest.Options{})
	socket := n.path("/run/jackfield/status.sock")
	var st os.FileInfo
	eventually(t, "the socket", func() (ok bool) {
		var err error
		st, err = os.Stat(socket)
		return err == nil
	})
	if st.Mode().Perm() != 0o600 {
		t.Errorf("the socket's mode is %v", st.Mode())
	}

	// Whatever the mode says, another user is not answered.
	check(t, os.Chmod(socket, 0o666))
	check(t, os.Chmod(n.dir, 0o755))
	exe, err := os.Executable()
	check(t, err)
	copied := filepath.Join(n.dir, "peer")
	data, err := os.ReadFile(exe)
	check(t, err)
	check(t, os.WriteFile(copied, data, 0o755))
	cmd := exec.Command(copied, "-test.run=^TestHelperStatusPeer$")
	cmd.Env = append(os.Environ(), "STATUS_ROOT="+n.dir)
	if os.Geteuid() != 0 {
		skip(t, "another user can be had by root alone")
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "peer: unavailable") {
		t.Errorf("another user: %v\n%s", err, out)
	}

	// Peers that connect and read nothing: a container is created while they are held,
	// which is for seconds. Where the machine takes longer for a container than the
	// peers are held it is tried with others.
	n.write("/etc/cdi/vendor.json", cdiSpec)
	pod := n.pod("dpdk-1", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	for attempt := 1; ; attempt++ {
		var peers []net.Conn
		for range 30 {
			c, err := net.Dial("unix", socket)
			check(t, err)
			t.Cleanup(func() { c.Close() })
			_, _ = fmt.Fprint(c, "GET /status HTTP/1.1\r\nHost: x\r\n")
			peers = append(peers, c)
		}
		began := time.Now()
		n.mustCreate(pod)
		took := time.Since(began)
		held := func(c net.Conn) bool {
			check(t, c.SetReadDeadline(time.Now().Add(time.Millisecond)))
			_, err := c.Read(make([]byte, 1))
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
		if slices.ContainsFunc(peers, held) {
			n.status("an answer once they are cut off", containers(attempt))
			break
		}
		if attempt == 10 {
			t.Fatalf("a container took %v beside them, which is longer than they are held", took)
		}
	}
}

// TestHelperStatusPeer is the other user.
func TestHelperStatusPeer(t *testing.T) {
	root := os.Getenv("STATUS_ROOT")
	if root == "" {
		return // runs as another user, below TestStatusSocketAdmitsOnlyRoot
	}
	host, err := hostfs.New(root)
	check(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Hangs)
	defer cancel()
	_, err = status.Get(ctx, host, "/run/jackfield")
	if !errdefs.IsUnavailable(err) {
		t.Fatalf("answered: %v", err)
	}
	fmt.Println("peer: unavailable")
}
