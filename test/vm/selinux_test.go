// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const (
	containerLabel = "system_u:system_r:container_t:s0"
	fileLabel      = "system_u:object_r:container_file_t:s0"
	// pluginLabel is that of privileged containers, as which jackfield-nri runs in a cluster.
	pluginLabel = "system_u:system_r:spc_t:s0"
	runLabel    = "system_u:object_r:var_run_t:s0"
)

// requireSELinux skips a test in a machine without SELinux. CI has none: the policy takes long to load.
func requireSELinux(t *testing.T) {
	t.Helper()
	Require(t)
	if !isSELinux() {
		t.Skip("skipped: this needs the machine of `make vm-selinux`")
	}
}

// labelPrograms gives the programs of the machine the label that a runtime gives the files of an image.
var labelPrograms = sync.OnceValue(func() error { return setLabels("/usr", fileLabel) })

// newConfinedHost is newHost for containers in the domain container_t.
func newConfinedHost(t *testing.T, config string) *host {
	t.Helper()
	h := newHost(t, config)
	t.Cleanup(func() {
		for line := range strings.Lines(kernelLog(context.Background())) {
			if t.Failed() && strings.Contains(line, "tcontext=") && strings.Contains(line, "permissive=0") {
				t.Log(line)
			}
		}
	})
	root := filepath.Join(h.dir, "root")
	if err := run(t.Context(), "cp", programs+"test", filepath.Join(root, "probe")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "shadow"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{labelPrograms(), setLabels(h.dir, runLabel), setLabels(root, fileLabel),
		setLabels(filepath.Join(root, "shadow"), "system_u:object_r:shadow_t:s0")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// confined returns a container in the domain container_t, which runs a command after it has found that SELinux is
// enforcing.
func confined(b box) box {
	b.label, b.inject = containerLabel, true
	b.command = `cat /proc/self/attr/current; cat /shadow && exit 1; ` + strings.ReplaceAll(b.command, programs+"test", "/probe")
	return b
}

// A container in the domain container_t uses its devices.
func TestSELinuxAllowsDeviceNodes(t *testing.T) {
	requireSELinux(t)
	bindAll(t, "vfio-pci", vf0)
	h := newConfinedHost(t, config)
	out := h.succeed(confined(box{name: "devices", devices: []device{pci(vf0), vdpa("sim0", "vhost", "")},
		command: opens(vf0) + probeTool + "vdpa " + vhostNode("sim0") + " 2>&1"}), containerLabel, "virtio device 1")
	if n := strings.Count(out, "configuration space 8680ca10\nmapped\n"); n != 2 {
		t.Errorf("the function was used %d times, want 2: %s", n, out)
	}
}

// With a user namespace, the nodes are mounts of the host's nodes. The policy denies their labels, although their modes
// let every user open them.
func TestSELinuxDeniesNodesInUserNamespace(t *testing.T) {
	requireSELinux(t)
	bindAll(t, "vfio-pci", vf0)
	h := newConfinedHost(t, config)
	if err := errors.Join(os.Chmod(h.dir, 0o755), os.Chmod(filepath.Dir(h.dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{groupNode(vf0), cdevNode(vf0), "/dev/iommu"} {
		if err := os.Chmod(node, 0o666); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := os.Chmod(node, 0o600); err != nil {
				t.Error(err)
			}
		})
	}
	out := h.succeed(confined(box{name: "userns", userNS: true, devices: []device{pci(vf0)}, command: opens(vf0) + "true"}), containerLabel)
	if strings.Contains(out, "mapped") || strings.Count(out, "permission denied") < 2 {
		t.Errorf("the container has opened a node: %s", out)
	}
}

// devices.json has the label of the state directory without sockets.selinuxLabel, and cannot be read.
func TestSELinuxLabelOpensDirectory(t *testing.T) {
	requireSELinux(t)
	bindAll(t, "vfio-pci", vf0)
	const command = "cat /run/jackfield/devices.json; ls -l /run/jackfield 2>&1; true"
	b := confined(box{name: "unlabelled", devices: []device{pci(vf0)}, command: command})
	newConfinedHost(t, config).succeed(b, "can't open '/run/jackfield/devices.json': Permission denied")
	b.name = "labelled"
	out := newConfinedHost(t, config+"sockets: {selinuxLabel: \""+fileLabel+"\"}\n").succeed(b, `"`+vf0+`"`)
	if !strings.HasSuffix(strings.TrimSpace(out), " devices.json") {
		t.Errorf("the directory is not listed: %s", out)
	}
}

// listenAs listens at a socket that belongs to a domain.
func listenAs(t *testing.T, path, domain string) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const attribute = "/proc/thread-self/attr/sockcreate"
	if err := os.WriteFile(attribute, []byte("system_u:system_r:"+domain+":s0"), 0); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if err := os.WriteFile(attribute, nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
}

// A container connects to a socket that has the label of sockets.selinuxLabel, and whose server is in a domain to which
// container_t may connect. The rule of the documentation adds the domain of services.
func TestSELinuxSocketNeedsLabelAndDomain(t *testing.T) {
	requireSELinux(t)
	t.Cleanup(func() {
		if err := loadPolicy("policy"); err != nil {
			t.Error(err)
		}
	})
	for _, tc := range []struct {
		name, policy, domain, label string
		connects                    bool
	}{
		{"no-label", "policy", "spc_t", "", false},
		{"spc", "policy", "spc_t", fileLabel, true},
		{"service", "policy", "initrc_t", fileLabel, false},
		{"dockerd", "policy", "dockerd_t", fileLabel, false},
		{"service-rule", "policy-service", "initrc_t", fileLabel, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := loadPolicy(tc.policy); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			h := newConfinedHost(t, `policy: {rules: [{name: telco, for: {namespaces: [telco]}, allow: {namedSockets: [db]}}]}
sockets: {staging: mount, selinuxLabel: "`+tc.label+`", named: {db: {path: `+dir+`/db.sock}}}
`)
			listenAs(t, dir+"/db.sock", tc.domain)
			// Without a network, the sandbox would be unknown.
			out := h.succeed(confined(box{name: "sock-" + tc.name, request: "socket:db", devices: []device{pci(vf0)},
				command: programs + "test probe connect /var/run/jackfield/named/db/db.sock 2>&1; true"}))
			if got := strings.Contains(out, "connected"); got != tc.connects || !got && !strings.Contains(out, "permission denied") {
				t.Errorf("the container printed: %s", out)
			}
		})
	}
}

// The policy denies IPC_LOCK, so that limits.memlock decides.
func TestSELinuxDeniesIPCLock(t *testing.T) {
	requireSELinux(t)
	bindAll(t, "vfio-pci", vf0)
	b := confined(box{name: "low", memlock: runtimeMemlock, devices: []device{pci(vf0)}, command: probeTool + "lock 2>&1; true"})
	newConfinedHost(t, config).succeed(b, "lock memory: ")
	if !strings.Contains(kernelLog(t.Context()), "denied  { ipc_lock }") {
		t.Error("the kernel has not logged the denial")
	}
	b.name = "high"
	newConfinedHost(t, config+"      limits: {memlock: unlimited}\n").succeed(b, "locked\n")
}
