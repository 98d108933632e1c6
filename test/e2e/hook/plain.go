// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	nrigen "github.com/containerd/nri/pkg/runtime-tools/generate"
	rspec "github.com/opencontainers/runtime-spec/specs-go"
	ocigen "github.com/opencontainers/runtime-tools/generate"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// runtimes returns the OCI runtimes by name.
func (h *host) runtimes() map[string]string {
	return map[string]string{"runc": h.common.Runc, "crun": h.kit.Crun}
}

// container is a container that a runtime runs without Podman.
type container struct {
	id          string
	stages      []string // of the hook
	annotations map[string]string
	command     string // for sh -c
	readOnly    bool
	userNS      bool
	adjust      *api.ContainerAdjustment // of an NRI plugin; nil for none
}

// deviceAnnotation requests CDI devices.
func deviceAnnotation(names ...string) map[string]string {
	return map[string]string{"devices.jackfield.dev": "vendor.example.com/dev=" + strings.Join(names, ",vendor.example.com/dev=")}
}

// run runs a container to its end and returns its output.
func (h *host) run(runtime string, c container) (string, error) {
	h.t.Helper()
	if c.id == "" {
		c.id = "c" + strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(h.t.Name()))
		c.id = c.id[:min(len(c.id), 60)]
	}
	bundle := h.path("bundle")
	h.mkdir("bundle")
	spec := h.spec(c)
	if c.adjust != nil {
		generator := nrigen.SpecGenerator(&ocigen.Generator{Config: spec})
		if err := generator.Adjust(c.adjust); err != nil {
			h.t.Fatal(err)
		}
	}
	data, err := json.MarshalIndent(spec, "", "\t")
	if err != nil {
		h.t.Fatal(err)
	}
	h.write("bundle/config.json", string(data))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return h.output(exec.CommandContext(ctx, runtime, "--root", h.path("oci-state"), "run", "--bundle", bundle, c.id))
}

func (h *host) output(cmd *exec.Cmd) (string, error) {
	h.wrap(cmd)
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// wrap makes a command and its children see the cgroups that the test is about.
func (h *host) wrap(cmd *exec.Cmd) {
	h.t.Helper()
	if !h.unified {
		return
	}
	// In a mount namespace of its own there is only version 2 of cgroups.
	script := "umount -l /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\""
	args := cmd.Args
	args[0] = cmd.Path
	if !hasCapability(h.t, unix.CAP_SYS_RESOURCE) {
		var err error
		if args, err = asIfRaised(args); err != nil {
			h.t.Fatal(err)
		}
	}
	cmd.Args = append([]string{"unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"}, args...)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		h.t.Fatal(err)
	}
	cmd.Path = unshare
}

// spec returns a configuration like that of `runc spec`, without what no test needs.
func (h *host) spec(c container) *rspec.Spec {
	caps := []string{"CAP_KILL", "CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_MKNOD"}
	s := &rspec.Spec{
		Version: "1.0.2",
		Root:    &rspec.Root{Path: h.rootfs(), Readonly: c.readOnly},
		Process: &rspec.Process{Args: []string{"/bin/sh", "-c", c.command}, Env: []string{"PATH=/bin"}, Cwd: "/",
			Capabilities: &rspec.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps}},
		Annotations: c.annotations,
		Mounts: []rspec.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
			{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
		},
		Linux: &rspec.Linux{
			CgroupsPath: filepath.Join(jail.CgroupParent(), c.id),
			Resources:   &rspec.LinuxResources{Devices: []rspec.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			Namespaces:  []rspec.LinuxNamespace{{Type: rspec.PIDNamespace}, {Type: rspec.MountNamespace}, {Type: rspec.IPCNamespace}},
		},
	}
	s.Linux.RootfsPropagation = h.propagation
	if c.userNS {
		s.Linux.Namespaces = append(s.Linux.Namespaces, rspec.LinuxNamespace{Type: rspec.UserNamespace})
		s.Linux.UIDMappings = []rspec.LinuxIDMapping{{HostID: 100000, Size: 65536}}
		s.Linux.GIDMappings = s.Linux.UIDMappings
		h.chownTree()
	}
	for _, stage := range append(c.stages, "poststop") {
		hook := rspec.Hook{Path: h.hookCommand(), Args: h.hookArgs(stage)}
		if s.Hooks == nil {
			s.Hooks = &rspec.Hooks{}
		}
		switch stage {
		case "createRuntime":
			s.Hooks.CreateRuntime = append(s.Hooks.CreateRuntime, hook)
		case "prestart":
			//lint:ignore SA1019 runtimes run it, and the hook supports it.
			s.Hooks.Prestart = append(s.Hooks.Prestart, hook)
		case "poststop":
			s.Hooks.Poststop = append(s.Hooks.Poststop, hook)
		}
	}
	return s
}

// chownTree gives the root file system to root of the user namespace, and lets that user traverse the
// directories above it.
func (h *host) chownTree() {
	h.t.Helper()
	err := filepath.Walk(h.path("rootfs"), func(name string, _ os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, 100000, 100000)
	})
	for dir := h.dir; err == nil && dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// checkPrinted fails the test unless the container ran and printed all parts.
func (h *host) checkPrinted(out string, err error, parts ...string) {
	h.t.Helper()
	if err != nil {
		h.t.Fatalf("%v: %s", err, out)
	}
	for _, p := range parts {
		if !strings.Contains(out, p) {
			h.t.Errorf("printed %q, want %q", out, p)
		}
	}
}

// checkRefused fails the test unless the container was refused with all parts in the output. A runtime may
// print them in quotes.
func checkRefused(t *testing.T, out string, err error, parts ...string) {
	t.Helper()
	out = strings.ReplaceAll(out, `\`, "")
	if err == nil {
		t.Errorf("the container ran: %s", out)
	}
	for _, p := range parts {
		if !strings.Contains(out, p) {
			t.Errorf("printed %q, want %q", out, p)
		}
	}
}
