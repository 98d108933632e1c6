// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/jackfield/jackfield/test/kubelet"
)

const programs = "/share/bin/"

// firstSubUID is the host's user that is root in a container with a user namespace.
const firstSubUID = 200000

// host runs containers with an OCI runtime alone, which takes a second where a pod of containerd takes ten. They are
// containers of pods to Jackfield: a kubelet reports their devices.
type host struct {
	t       *testing.T
	dir     string
	config  string // of Jackfield
	kubelet *kubelet.Server
	pods    []*v1.PodResources
}

// box describes a container that a host runs.
type box struct {
	name    string
	runtime string // a program; "" is runc
	inject  bool   // by jackfield inject, and not by the hook
	devices []device
	demand  bool // its annotation requests the devices, so it must not start without them
	// request is another annotation.
	request string
	// present are nodes of the host that the device plugin has delivered.
	present []string
	command string // for the shell
	// apparmor is the container's profile.
	apparmor string
	// label is the container's SELinux label. Its files in memory have [fileLabel].
	label string
	// userNS gives the container a user namespace.
	userNS bool
	// memlock is the limit of locked memory; 0 is that of the runtime.
	memlock uint64
	// user is the user and group; 0 is root.
	user uint32
}

// annotation is the key of a pod's requests.
const annotation = "devices.jackfield.dev"

// requests returns the value of the pod's annotation; "" for none.
func (b *box) requests() string {
	if b.demand {
		return "resource:" + resource
	}
	return b.request
}

func newHost(t *testing.T, config string) *host {
	t.Helper()
	Require(t)
	h := &host{t: t, dir: t.TempDir()}
	var err error
	if h.kubelet, err = kubelet.StartUnder(""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kubelet.Stop)
	h.config = filepath.Join(h.dir, "config.yaml")
	if err := os.WriteFile(h.config, []byte("stateDir: "+h.dir+"/state\ncdi: {specDirs: ["+h.dir+"/cdi]}\n"+config), 0o600); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(h.dir, "root")
	for _, dir := range strings.Fields("usr dev proc sys run tmp etc/libibverbs.d share/bin var") {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64", "var/run": "/run"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// spec returns the container's configuration.
func (h *host) spec(b box) *rspec.Spec {
	caps := strings.Fields("CAP_KILL CAP_CHOWN CAP_DAC_OVERRIDE CAP_MKNOD CAP_IPC_LOCK CAP_NET_ADMIN CAP_NET_RAW CAP_SYS_RAWIO")
	s := &rspec.Spec{
		Version: "1.0.2",
		Root:    &rspec.Root{Path: filepath.Join(h.dir, "root")},
		Process: &rspec.Process{Args: []string{"/bin/sh", "-c", b.command}, Env: []string{"PATH=/usr/sbin:/usr/bin"}, Cwd: "/",
			Capabilities: &rspec.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			User:         rspec.User{UID: b.user, GID: b.user}, ApparmorProfile: b.apparmor},
		Annotations: map[string]string{
			"io.kubernetes.cri.sandbox-id": b.name, "io.kubernetes.cri.container-type": "container",
			"io.kubernetes.cri.sandbox-namespace": "telco", "io.kubernetes.cri.sandbox-name": b.name,
			"io.kubernetes.cri.sandbox-uid": b.name, "io.kubernetes.cri.container-name": "app"},
		Mounts: []rspec.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/sys", Type: "bind", Source: "/sys", Options: []string{"rbind", "ro"}},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/run", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/shm", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/dev/hugepages", Type: "bind", Source: "/dev/hugepages", Options: []string{"bind"}},
		},
		Linux: &rspec.Linux{
			CgroupsPath: filepath.Join("/"+cgroup, b.name),
			Resources:   &rspec.LinuxResources{Devices: []rspec.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			Namespaces:  []rspec.LinuxNamespace{{Type: rspec.PIDNamespace}, {Type: rspec.MountNamespace}, {Type: rspec.IPCNamespace}},
		},
	}
	for _, dir := range []string{"/usr", "/share/bin", "/etc/libibverbs.d"} {
		s.Mounts = append(s.Mounts, rspec.Mount{Destination: dir, Type: "bind", Source: dir, Options: []string{"bind", "ro"}})
	}
	if b.label != "" {
		s.Process.SelinuxLabel, s.Linux.MountLabel = b.label, fileLabel
	}
	if b.userNS {
		s.Linux.Namespaces = append(s.Linux.Namespaces, rspec.LinuxNamespace{Type: rspec.UserNamespace})
		ids := []rspec.LinuxIDMapping{{HostID: firstSubUID, Size: 65536}}
		s.Linux.UIDMappings, s.Linux.GIDMappings = ids, ids
	}
	if b.memlock != 0 {
		s.Process.Rlimits = []rspec.POSIXRlimit{{Type: "RLIMIT_MEMLOCK", Hard: b.memlock, Soft: b.memlock}}
	}
	if request := b.requests(); request != "" {
		s.Annotations[annotation] = request
	}
	for _, node := range b.present {
		major, minor := number(h.t, node)
		at := [2]int64{int64(major), int64(minor)}
		s.Linux.Devices = append(s.Linux.Devices, rspec.LinuxDevice{Path: node, Type: "c", Major: at[0], Minor: at[1]})
		s.Linux.Resources.Devices = append(s.Linux.Resources.Devices,
			rspec.LinuxDeviceCgroup{Allow: true, Type: "c", Major: &at[0], Minor: &at[1], Access: "rwm"})
	}
	if !b.inject {
		hook := func(stage string) []rspec.Hook {
			return []rspec.Hook{{Path: programs + "jackfield-hook", Args: []string{"jackfield-hook", "--config", h.config, stage}}}
		}
		s.Hooks = &rspec.Hooks{CreateRuntime: hook("createRuntime"), Poststop: hook("poststop")}
	}
	return s
}

// allocate makes the kubelet report a container's devices, and writes the files of its networks.
func (h *host) allocate(b box) {
	h.t.Helper()
	app := kubelet.Container("app")
	for i, d := range b.devices {
		kubelet.Device(resource, d.id)(app)
		if err := writeDeviceInfo("telco", b.name, fmt.Sprintf("net%d", i+1), d.info); err != nil {
			h.t.Fatal(err)
		}
	}
	h.pods = append(h.pods, kubelet.Pod("telco", b.name, app))
	h.kubelet.SetPods(h.pods...)
}

// command returns the command that runs a container, whose devices are allocated.
func (h *host) command(b box) *exec.Cmd {
	h.t.Helper()
	if b.runtime == "" {
		b.runtime = programs + "runc"
	}
	bundle := filepath.Join(h.dir, b.name)
	data, err := json.Marshal(h.spec(b))
	if err == nil {
		err = os.MkdirAll(bundle, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o644)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	script := `exec "$@"`
	if b.inject {
		inject := programs + "jackfield inject --config " + h.config + " --bundle " + bundle + " --sandbox-id " + b.name +
			" --container-id " + b.name + " -n telco --pod " + b.name + " --container app"
		if request := b.requests(); request != "" {
			inject += " --annotation " + annotation + "=" + request
		}
		script = inject + " && " + script
		if b.label != "" {
			// Files have the labels that a privileged pod gives them.
			script = "label=/proc/self/attr/exec; echo " + pluginLabel + " >$label; " + inject + ` || exit; echo >$label; exec "$@"`
		}
	}
	cmd := exec.Command("sh", "-c", script, "sh", b.runtime, "--root", filepath.Join(h.dir, "runtime"), "run", "--bundle", bundle, b.name)
	cmd.WaitDelay = time.Minute
	return cmd
}

// run runs a container to its end and returns its output. In an emulated machine the stand-in for the kubelet can miss the
// second that Jackfield waits for an answer; the container is then run again.
func (h *host) run(b box) (string, error) {
	h.t.Helper()
	h.allocate(b)
	for {
		data, err := h.command(b).CombinedOutput()
		out := strings.ReplaceAll(string(data), `\`, "")
		if err == nil || !strings.Contains(out, "no answer in time") || h.t.Context().Err() != nil {
			return out, err
		}
	}
}

// succeed is run for a container that must print texts.
func (h *host) succeed(b box, texts ...string) string {
	h.t.Helper()
	out, err := h.run(b)
	if err != nil {
		h.t.Errorf("container %q: %v", b.name, err)
	}
	check(h.t, out, texts...)
	return out
}

// refused is run for a container that must not start, with texts as the reason.
func (h *host) refused(b box, texts ...string) {
	h.t.Helper()
	b.command = "echo started"
	b.demand = true
	out, err := h.run(b)
	if err == nil || strings.Contains(out, "started\n") {
		h.t.Errorf("container %q has started: %s", b.name, out)
	}
	check(h.t, out, texts...)
}

// explain returns what jackfield explain prints about a container that was run.
func (h *host) explain(name string) string {
	h.t.Helper()
	return explain(exec.CommandContext(h.t.Context(), programs+"jackfield", "explain", "-", "--config", h.config, "--sandbox-id", name), name)
}

// explain runs jackfield explain with the manifest of a pod that requires its devices, and returns the output.
func explain(cmd *exec.Cmd, name string) string {
	cmd.Stdin = strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", namespace: telco, uid: " + name +
		", annotations: {" + annotation + ": \"resource:" + resource + "\"}}, spec: {containers: [{name: app}]}}")
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// running is a container that runs beside the test.
type running struct {
	h   *host
	box box
	cmd *exec.Cmd
	log string
}

// start starts a container, which is killed when the test ends.
func (h *host) start(b box) *running {
	h.t.Helper()
	h.allocate(b)
	r := &running{h: h, box: b, log: filepath.Join(h.dir, b.name+".log")}
	r.start()
	h.t.Cleanup(func() {
		r.stop("KILL")
		if h.t.Failed() {
			h.t.Logf("container %q printed:\n%s", r.box.name, r.output())
		}
	})
	return r
}

func (r *running) start() {
	r.h.t.Helper()
	log, err := os.Create(r.log)
	if err != nil {
		r.h.t.Fatal(err)
	}
	defer log.Close()
	r.cmd = r.h.command(r.box)
	r.cmd.Stdout, r.cmd.Stderr = log, log
	if err := r.cmd.Start(); err != nil {
		r.h.t.Fatal(err)
	}
}

func (r *running) output() string {
	data, err := os.ReadFile(r.log)
	if err != nil {
		r.h.t.Error(err)
	}
	return string(data)
}

// wait waits until the container has printed a text. Like [host.run], it starts the container again.
func (r *running) wait(text string) {
	r.h.t.Helper()
	err := waitUntil(r.h.t.Context(), fmt.Sprintf("%q of container %q", text, r.box.name), func() bool {
		out := r.output()
		if strings.Contains(out, "no answer in time") {
			r.stop("KILL")
			r.start()
		}
		return strings.Contains(out, text)
	})
	if err != nil {
		r.h.t.Fatal(err)
	}
}

// stop sends a signal to the container's first process and waits until the container has ended.
func (r *running) stop(signal string) {
	if r.cmd.ProcessState != nil {
		return
	}
	_ = exec.Command(programs+"runc", "--root", filepath.Join(r.h.dir, "runtime"), "kill", r.box.name, signal).Run()
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		r.h.t.Errorf("container %q: %v", r.box.name, err)
	}
}
