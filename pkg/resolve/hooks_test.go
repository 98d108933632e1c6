// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hooksd"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const hookRules = `
hooks: {dirs: [/etc/hooks.d]}
policy:
  mode: MODE
  rules:
    - name: trusted
      for: {namespaces: [ns]}
      allow: {hooks: ["/opt/hooks/*"]}
`

func hooksDirs(host hostfs.Root, dirs []string) HooksDirs {
	return hooksd.New(host, dirs, hooksd.Options{})
}

func newHooksHost(t *testing.T, mode string) *host {
	t.Helper()
	h := newHost(t, "enforce")
	h.write("/opt/hooks/a", "#!")
	must(t, os.Chmod(filepath.Join(h.dir, "opt/hooks/a"), 0o755))
	cfg, err := config.Parse([]byte(strings.ReplaceAll(hookRules, "MODE", mode)), "/etc/jackfield/config.yaml")
	must(t, err)
	e, err := New(h.e.host, cfg, Options{HooksDirs: hooksDirs})
	must(t, err)
	must(t, h.e.Close())
	h.e = e
	return h
}

func (h *host) hook(name, program, when string) {
	h.t.Helper()
	h.write("/etc/hooks.d/"+name, fmt.Sprintf(`{"version":"1.0.0","hook":{"path":%q,"args":["a",%q],"timeout":2},"when":%s,"stages":["prestart","poststop"]}`, program, name, when))
}

func TestHooksOfDirectories(t *testing.T) {
	h := newHooksHost(t, "enforce")
	pod := &Request{SandboxID: "s", ContainerID: "c", Namespace: "ns", Pod: "p", Container: "c", Args: []string{"/bin/app"}, Annotations: map[string]string{"example.com/x": "yes"}}
	if p, err := h.e.Resolve(t.Context(), pod); p != nil || err != nil {
		t.Fatalf("without a hook: %+v, %v", p, err)
	}
	h.hook("10-x.json", "/opt/hooks/a", `{"annotations":{"^example\\.com/x$":"^yes$"}}`)
	h.hook("20-other.json", "/opt/hooks/a", `{"annotations":{"^example\\.com/y$":"^yes$"}}`)
	h.hook("30-always.json", "/opt/hooks/a", `{"always":true}`)
	h.hook("40-foreign.json", "/bin/foreign", `{"always":true}`)
	h.hook("50-gone.json", "/opt/hooks/gone", `{"always":true}`)
	p, err := h.e.Resolve(t.Context(), pod)
	must(t, err)
	var got string
	for _, hook := range p.Set.Hooks {
		got += fmt.Sprintln(hook.Stage, hook.Path, hook.Args, *hook.Timeout, hook.Origin.File, hook.Origin.Field, hook.Origin.Rule)
	}
	if want := `createRuntime /opt/hooks/a [a 10-x.json] 2 /etc/hooks.d/10-x.json stages[0] trusted
poststop /opt/hooks/a [a 10-x.json] 2 /etc/hooks.d/10-x.json stages[1] trusted
createRuntime /opt/hooks/a [a 30-always.json] 2 /etc/hooks.d/30-always.json stages[0] trusted
poststop /opt/hooks/a [a 30-always.json] 2 /etc/hooks.d/30-always.json stages[1] trusted
`; got != want {
		t.Errorf("hooks are\n%s\nwant\n%s", got, want)
	}
	if o := outcomes(p); o[`hook "10-x.json"`] != Injected || o[`hook "40-foreign.json"`] != LeftAlone || o[`hook "50-gone.json"`] != LeftAlone {
		t.Errorf("outcomes are %v", o)
	}
	// What asked for a hook in an annotation gets it, or is not created.
	other := *pod
	other.Namespace = "other"
	other.Pod, other.Container = "ns/p", "c"
	h.refuse(&other, errdefs.IsPermissionDenied, `hook "/opt/hooks/a"`, "/etc/hooks.d/10-x.json", "allow: {hooks:")
	h.hook("10-x.json", "/opt/hooks/gone", `{"annotations":{"^example\\.com/x$":"^yes$"}}`)
	h.refuse(pod, errdefs.IsNotFound, "/etc/hooks.d/10-x.json", "hook.path", "no such file on this host")
	// The runtime's own annotations of the container ask for nothing.
	h.hook("10-x.json", "/opt/hooks/gone", `{"annotations":{"^io\\.kubernetes\\.cri\\..*":""}}`)
	runtimes := *pod
	runtimes.ContainerAnnotations = map[string]string{"io.kubernetes.cri.container-type": "container"}
	if p, err := h.e.Resolve(t.Context(), &runtimes); err != nil || outcomes(p)[`hook "10-x.json"`] != LeftAlone {
		t.Errorf("got %v, %v", p, err)
	}
}

// Hooks come to a pod that asks for no network, also while the device-info of networks
// cannot be read; one that asks is refused.
func TestHooksWhereDeviceInfoHangs(t *testing.T) {
	h := newHooksHost(t, "enforce")
	h.hook("30-always.json", "/opt/hooks/a", `{"always":true}`)
	e, err := New(h.e.host, h.e.cfg, Options{HooksDirs: hooksDirs, Answers: func(dir string) error {
		if dir == h.e.cfg.DeviceInfo.CNIDir {
			return errdefs.ErrUnavailable
		}
		return nil
	}})
	must(t, err)
	must(t, h.e.Close())
	h.e = e
	if p := h.resolve(ask("")); len(p.Set.Hooks) != 2 {
		t.Errorf("hooks are %+v", p.Set.Hooks)
	}
	r := ask("")
	r.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "a"}
	h.refuse(r, errdefs.IsUnavailable)
}

func TestHooksInAuditMode(t *testing.T) {
	h := newHooksHost(t, "audit")
	h.hook("10-x.json", "/opt/hooks/a", `{"annotations":{"x":""}}`)
	h.hook("20-y.json", "/opt/hooks/a", `{"always":true}`)
	p := h.resolve(&Request{SandboxID: "s", ContainerID: "c", Namespace: "other", Pod: "p", Container: "app", Annotations: map[string]string{"x": "y"}})
	if o := outcomes(p); o[`hook "10-x.json"`] != Injected || o[`hook "20-y.json"`] != LeftAlone || p.Items[0].Audit == "" {
		t.Errorf("outcomes are %v, %q", o, p.Items[0].Audit)
	}
}

func TestDoorsOfRuntimesThatReadHooksThemselves(t *testing.T) {
	h := newHooksHost(t, "enforce")
	h.hook("10-x.json", "/opt/hooks/a", `{"always":true}`)
	cfg := h.e.cfg
	must(t, h.e.Close())
	var err error
	h.e, err = New(h.e.host, cfg, Options{})
	must(t, err)
	if p, err := h.e.Resolve(t.Context(), &Request{Namespace: "ns", Pod: "p", Container: "app"}); p != nil || err != nil {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestHasBindMounts(t *testing.T) {
	const sandboxes = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/SANDBOX/"
	const pods = "/var/lib/kubelet/pods/UID/"
	own := []edits.Mount{
		{Destination: "/proc", Source: "proc", Type: "proc"},
		{Destination: "/dev", Source: "tmpfs", Type: "tmpfs"},
		{Destination: "/etc/hostname", Source: sandboxes + "hostname", Type: "bind", Options: []string{"rbind", "ro"}},
		{Destination: "/etc/resolv.conf", Source: sandboxes + "resolv.conf", Type: "bind"},
		{Destination: "/dev/shm", Source: "/run/containerd/io.containerd.grpc.v1.cri/sandboxes/SANDBOX/shm", Type: "bind"},
		{Destination: "/etc/hosts", Source: pods + "etc-hosts", Type: "bind"},
		{Destination: "/dev/termination-log", Source: pods + "containers/app/1a2b3c4d", Type: "bind"},
		{Destination: "/var/run/secrets/kubernetes.io/serviceaccount", Source: pods + "volumes/kubernetes.io~projected/kube-api-access-x", Type: "bind"},
		{Destination: "/run/.containerenv", Source: "/run/containers/storage/overlay-containers/CONTAINER/userdata/.containerenv", Options: []string{"bind"}},
	}
	for name, tc := range map[string]struct {
		extra edits.Mount
		want  bool
	}{
		"none":                 {edits.Mount{Destination: "/sys", Source: "sysfs", Type: "sysfs"}, false},
		"the host's IPC":       {edits.Mount{Destination: "/dev/shm", Source: "/dev/shm", Type: "bind"}, false},
		"an emptyDir":          {edits.Mount{Destination: "/data", Source: pods + "volumes/kubernetes.io~empty-dir/data", Type: "bind"}, true},
		"a hostPath":           {edits.Mount{Destination: "/data", Source: "/srv", Type: "bind"}, true},
		"hosts of one's own":   {edits.Mount{Destination: "/etc/hosts", Source: "/srv/hosts", Type: "bind"}, true},
		"by its option":        {edits.Mount{Destination: "/data", Source: "/srv", Options: []string{"rbind"}}, true},
		"a tmpfs":              {edits.Mount{Destination: "/data", Source: "tmpfs", Type: "tmpfs"}, false},
		"a name with the ID":   {edits.Mount{Destination: "/data", Source: "/srv/xSANDBOX", Type: "bind"}, true},
		"a claim of other IDs": {edits.Mount{Destination: "/data", Source: "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/OTHER/x", Type: "bind"}, true},
	} {
		r := &Request{SandboxID: "SANDBOX", ContainerID: "CONTAINER", PodUID: "UID", Have: edits.Existing{Mounts: append(append([]edits.Mount(nil), own...), tc.extra)}}
		if got := hasBindMounts(r); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
