// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/vswitch"
)

// host is a directory with everything that a test's containers need: configuration, CDI files, sockets and
// root file systems.
type host struct {
	t      *testing.T
	dir    string
	kit    kit
	common *node.Kit
	before resources // the inventory before the test

	quiet       bool   // the root file system exists and is not changed
	propagation string // of a container's root, when it is run without Podman

	unified bool   // runtimes see only cgroups of version 2
	hook    string // the hook program; "" is the built one
}

func newHost(t *testing.T) *host {
	t.Helper()
	k, common := require(t)
	// Podman needs short directory names.
	dir, err := os.MkdirTemp("", "h")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h := &host{t: t, dir: dir, kit: k, common: common}
	h.before = h.listResources()
	for _, dir := range []string{"cdi", "state", "sock", "devinfo"} {
		h.mkdir(dir)
	}
	h.configure("")
	// The device has the number of /dev/zero, and a name that no other device of the host has.
	if err := unix.Mknod(h.path("fancy0"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(h.path("fancy0"), 0o666); err != nil {
		t.Fatal(err)
	}
	// /dev/fuse is a device that no runtime grants to all containers.
	if err := unix.Mknod(h.path("ctl0"), unix.S_IFCHR|0o666, int(unix.Mkdev(10, 229))); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(h.path("ctl0"), 0o666); err != nil {
		t.Fatal(err)
	}
	h.write("cdi/vendor.json", `{"cdiVersion":"0.6.0","kind":"vendor.example.com/dev","devices":[
		{"name":"zero","containerEdits":{"deviceNodes":[{"path":"/dev/fancy","hostPath":"`+h.path("fancy0")+`","permissions":"rw"}],
			"mounts":[{"hostPath":"`+h.path("data")+`","containerPath":"/opt/data","options":["ro","bind"]}]}},
		{"name":"full","containerEdits":{"env":["FANCY=1"],"deviceNodes":[{"path":"/dev/fancy","hostPath":"`+h.path("fancy0")+`"}],
			"hooks":[{"hookName":"createRuntime","path":"/bin/cp","args":["cp","/dev/stdin","`+h.path("hook-ran")+`"]}]}},
		{"name":"ctl","containerEdits":{"deviceNodes":[{"path":"/dev/ctl","hostPath":"`+h.path("ctl0")+`","permissions":"rw"}]}},
		{"name":"env","containerEdits":{"env":["FANCY=1"]}},
		{"name":"secret","containerEdits":{"env":["SECRET=1"]}}]}`)
	h.write("data/file", "from the host\n")
	t.Cleanup(h.checkClean)
	return h
}

func (h *host) path(name string) string { return filepath.Join(h.dir, name) }

func (h *host) mkdir(name string) {
	h.t.Helper()
	if err := os.MkdirAll(h.path(name), 0o755); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) write(name, text string) {
	h.t.Helper()
	h.mkdir(filepath.Dir(name))
	if err := os.WriteFile(h.path(name), []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) read(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(h.path(name))
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

// configure writes the node's configuration: containers without a pod may have all CDI devices but one, and
// the sockets of one directory.
func (h *host) configure(more string) {
	h.write("config.yaml", `cdi: {specDirs: [`+h.path("cdi")+`]}
sockets: {roots: [`+h.path("sock")+`]}
deviceInfo: {cniDir: `+h.path("devinfo")+`}
stateDir: `+h.path("state")+`
policy:
  rules:
    - name: containers
      for: {namespaces: [""]}
      allow:
        cdi: ["vendor.example.com/dev=zero", "vendor.example.com/dev=full", "vendor.example.com/dev=env", "vendor.example.com/dev=ctl"]
        sockets: ["`+h.path("sock")+`/**"]
`+more)
}

// rootfs creates a root file system with busybox and the socket client.
func (h *host) rootfs() string {
	h.t.Helper()
	name := "rootfs"
	if h.quiet {
		return h.path(name)
	}
	for _, dir := range []string{"bin", "dev", "proc", "sys", "etc", "tmp", "run", "var"} {
		h.mkdir(filepath.Join(name, dir))
	}
	if err := os.Chmod(h.path("rootfs/tmp"), 0o1777); err != nil {
		h.t.Fatal(err)
	}
	for from, to := range map[string]string{h.common.Busybox: "busybox", h.common.Commands["sockclient"]: "sockclient"} {
		data, err := os.ReadFile(from)
		if err != nil {
			h.t.Fatal(err)
		}
		if err := os.WriteFile(h.path(filepath.Join(name, "bin", to)), data, 0o755); err != nil {
			h.t.Fatal(err)
		}
	}
	for _, applet := range strings.Fields("sh cat dd ls env stat echo grep od mknod id test mount touch") {
		if err := os.Symlink("busybox", h.path(filepath.Join(name, "bin", applet))); err != nil && !os.IsExist(err) {
			h.t.Fatal(err)
		}
	}
	if err := os.Symlink("/run", h.path(filepath.Join(name, "var/run"))); err != nil && !os.IsExist(err) {
		h.t.Fatal(err)
	}
	h.write("rootfs/etc/passwd", "root:x:0:0:root:/:/bin/sh\n")
	return h.path(name)
}

// socket starts a vswitch with a socket that a network of the container ID has.
func (h *host) socket(id string) {
	h.t.Helper()
	h.mkdir("sock/port0")
	s, err := vswitch.Listen(vswitch.VhostUser, h.path("sock/port0/vhost.sock"), vswitch.Greeting("vswitch"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			h.t.Error(err)
		}
	})
	h.network(id, s.Path())
}

// network gives the container ID a network with a socket of the host at a path.
func (h *host) network(id, socket string) {
	h.t.Helper()
	info, err := json.Marshal(map[string]any{"type": "vhost-user", "version": "1.1.0",
		"vhost-user": map[string]any{"mode": "client", "path": socket}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("devinfo/ns-fast-"+id+"_net1", string(info))
}

// hookCommand returns the path of the hook program.
func (h *host) hookCommand() string {
	h.t.Helper()
	if h.hook != "" {
		return h.hook
	}
	bin, err := h.common.Command("jackfield-hook")
	if err != nil {
		h.t.Fatal(err)
	}
	return bin
}

func (h *host) hookArgs(stage string) []string {
	args := []string{"jackfield-hook", "--config", h.path("config.yaml"), "--log", h.path("hook.log")}
	if stage != "" {
		args = append(args, stage)
	}
	return args
}

// log returns the hook's log.
func (h *host) log() string {
	data, err := os.ReadFile(h.path("hook.log"))
	if err != nil && !os.IsNotExist(err) {
		h.t.Error(err)
	}
	return string(data)
}

// writeSystemFile writes a file below the jail's /etc, and removes it at the end of the test.
func (h *host) writeSystemFile(file, text string) {
	h.t.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o644)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { os.Remove(file) })
}
