// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/hooksd"
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

func newHooksHost(t *testing.T, mode string) *host {
	t.Helper()
	h := newHost(t, "enforce")
	h.write("/opt/hooks/a", "#!")
	testkit.Must(t, os.Chmod(filepath.Join(h.dir, "opt/hooks/a"), 0o755))
	cfg, err := config.Parse([]byte(strings.ReplaceAll(hookRules, "MODE", mode)), "/etc/jackfield/config.yaml")
	testkit.Must(t, err)
	e, err := New(h.e.host, cfg, Options{FindSocketDir: staging.SocketDirFinder(h.e.host, cfg.StateDir, ""), Hooks: hooksd.New(h.e.host, cfg.Hooks.Dirs, hooksd.Options{}).Hooks})
	testkit.Must(t, err)
	testkit.Must(t, h.e.Close())
	h.e = e
	return h
}

func (h *host) writeHook(name, program, when string) {
	h.t.Helper()
	h.write("/etc/hooks.d/"+name, fmt.Sprintf(`{"version":"1.0.0","hook":{"path":%q,"args":["a",%q],"timeout":2},"when":%s,"stages":["prestart","poststop"]}`, program, name, when))
}

func TestHooksOfHooksDirs(t *testing.T) {
	h := newHooksHost(t, "enforce")
	pod := &Request{SandboxID: "s", ContainerID: "c", Namespace: "ns", Pod: "p", Container: "c", Args: []string{"/bin/app"}, Annotations: map[string]string{"example.com/x": "yes"}}
	if p, err := h.e.Resolve(t.Context(), pod); p != nil || err != nil {
		t.Fatalf("without a hook: plan %+v, error %v", p, err)
	}
	h.writeHook("10-x.json", "/opt/hooks/a", `{"annotations":{"^example\\.com/x$":"^yes$"}}`)
	h.writeHook("20-other.json", "/opt/hooks/a", `{"annotations":{"^example\\.com/y$":"^yes$"}}`)
	h.writeHook("30-always.json", "/opt/hooks/a", `{"always":true}`)
	h.writeHook("40-foreign.json", "/bin/foreign", `{"always":true}`)
	h.writeHook("50-gone.json", "/opt/hooks/gone", `{"always":true}`)
	p, err := h.e.Resolve(t.Context(), pod)
	testkit.Must(t, err)
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
	if o := planOutcomes(p); o[`hook "10-x.json"`] != Injected || o[`hook "40-foreign.json"`] != Unmanaged || o[`hook "50-gone.json"`] != Unmanaged {
		t.Errorf("outcomes are %v", o)
	}
	// A pod that requests a hook by an annotation gets the hook, or is not created.
	other := *pod
	other.Namespace = "other"
	other.Pod, other.Container = "ns/p", "c"
	h.wantRefusal(&other, errdefs.IsPermissionDenied, `hook "/opt/hooks/a"`, "/etc/hooks.d/10-x.json", "allow: {hooks:")
	h.writeHook("10-x.json", "/opt/hooks/gone", `{"annotations":{"^example\\.com/x$":"^yes$"}}`)
	h.wantRefusal(pod, errdefs.IsNotFound, "/etc/hooks.d/10-x.json", "hook.path", "no such file on this host")
	// Annotations that the runtime adds to a container request no hook.
	h.writeHook("10-x.json", "/opt/hooks/gone", `{"annotations":{"^io\\.kubernetes\\.cri\\..*":""}}`)
	annotated := *pod
	annotated.ContainerAnnotations = map[string]string{"io.kubernetes.cri.container-type": "container"}
	if p, err := h.e.Resolve(t.Context(), &annotated); err != nil || planOutcomes(p)[`hook "10-x.json"`] != Unmanaged {
		t.Errorf("got %v, %v", p, err)
	}
}

// While the device-info directory is unresponsive, a pod that requests no network still gets its hooks. A pod
// that requests a network is refused.
func TestHooksWithUnresponsiveDeviceInfo(t *testing.T) {
	h := newHooksHost(t, "enforce")
	h.writeHook("30-always.json", "/opt/hooks/a", `{"always":true}`)
	e, err := New(h.e.host, h.e.cfg, Options{Hooks: hooksd.New(h.e.host, h.e.cfg.Hooks.Dirs, hooksd.Options{}).Hooks, CheckResponsive: func(dir string) error {
		if dir == h.e.cfg.DeviceInfo.CNIDir {
			return errdefs.ErrUnavailable
		}
		return nil
	}})
	testkit.Must(t, err)
	testkit.Must(t, h.e.Close())
	h.e = e
	if p := h.resolve(newRequest("")); len(p.Set.Hooks) != 2 {
		t.Errorf("hooks are %+v", p.Set.Hooks)
	}
	r := newRequest("")
	r.Annotations = map[string]string{"k8s.v1.cni.cncf.io/networks": "a"}
	h.wantRefusal(r, errdefs.IsUnavailable)
}

func TestHooksInAuditMode(t *testing.T) {
	h := newHooksHost(t, "audit")
	h.writeHook("10-x.json", "/opt/hooks/a", `{"annotations":{"x":""}}`)
	h.writeHook("20-y.json", "/opt/hooks/a", `{"always":true}`)
	p := h.resolve(&Request{SandboxID: "s", ContainerID: "c", Namespace: "other", Pod: "p", Container: "app", Annotations: map[string]string{"x": "y"}})
	if o := planOutcomes(p); o[`hook "10-x.json"`] != Injected || o[`hook "20-y.json"`] != Unmanaged || p.Items[0].Audit == "" {
		t.Errorf("outcomes are %v, %q", o, p.Items[0].Audit)
	}
}

func TestEngineWithoutHooksDirs(t *testing.T) {
	h := newHooksHost(t, "enforce")
	h.writeHook("10-x.json", "/opt/hooks/a", `{"always":true}`)
	cfg := h.e.cfg
	testkit.Must(t, h.e.Close())
	var err error
	h.e, err = New(h.e.host, cfg, Options{FindSocketDir: staging.SocketDirFinder(h.e.host, cfg.StateDir, "")})
	testkit.Must(t, err)
	if p, err := h.e.Resolve(t.Context(), &Request{Namespace: "ns", Pod: "p", Container: "app"}); p != nil || err != nil {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestOnlyRequestedBindMountsCount(t *testing.T) {
	const sandboxes = "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/SANDBOX/"
	const pods = "/var/lib/kubelet/pods/UID/"
	own := []edit.Mount{
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
		extra edit.Mount
		want  bool
		ipc   bool
	}{
		"no bind mount":                             {extra: edit.Mount{Destination: "/sys", Source: "sysfs", Type: "sysfs"}, want: false},
		"the host's /dev/shm":                       {extra: edit.Mount{Destination: "/dev/shm", Source: "/dev/shm", Type: "bind"}, ipc: true},
		"the host's /dev/shm in a pod with its own": {extra: edit.Mount{Destination: "/dev/shm", Source: "/dev/shm", Type: "bind"}, want: true},
		"the host at /dev/termination-log":          {extra: edit.Mount{Destination: "/dev/termination-log", Source: "/", Type: "bind"}, want: true},
		"the host at the token":                     {extra: edit.Mount{Destination: "/run/secrets/kubernetes.io/serviceaccount", Source: "/", Type: "bind"}, want: true},
		"the host at /etc/hosts":                    {extra: edit.Mount{Destination: "/etc/hosts", Source: "/", Type: "bind"}, want: true},
		"subPath at /dev/termination-log":           {extra: edit.Mount{Destination: "/dev/termination-log", Source: pods + "volume-subpaths/host/app/0", Type: "bind"}, want: true},
		"subPath at the token":                      {extra: edit.Mount{Destination: "/var/run/secrets/kubernetes.io/serviceaccount", Source: pods + "volume-subpaths/host/app/0", Type: "bind"}, want: true},
		"subPath at /etc/hosts":                     {extra: edit.Mount{Destination: "/etc/hosts", Source: pods + "volume-subpaths/host/app/0", Type: "bind"}, want: true},
		"another container's log":                   {extra: edit.Mount{Destination: "/dev/termination-log", Source: pods + "containers/other/1a2b3c4d", Type: "bind"}, want: true},
		"a path with ..":                            {extra: edit.Mount{Destination: "/dev/termination-log", Source: pods + "containers/app/../../../../../..", Type: "bind"}, want: true},
		"a token in a Secret":                       {extra: edit.Mount{Destination: "/var/run/secrets/kubernetes.io/serviceaccount", Source: pods + "volumes/kubernetes.io~secret/t", Type: "bind"}},
		"an emptyDir":                               {extra: edit.Mount{Destination: "/data", Source: pods + "volumes/kubernetes.io~empty-dir/data", Type: "bind"}, want: true},
		"a hostPath":                                {extra: edit.Mount{Destination: "/data", Source: "/srv", Type: "bind"}, want: true},
		"own /etc/hosts":                            {extra: edit.Mount{Destination: "/etc/hosts", Source: "/srv/hosts", Type: "bind"}, want: true},
		"rbind option":                              {extra: edit.Mount{Destination: "/data", Source: "/srv", Options: []string{"rbind"}}, want: true},
		"a tmpfs":                                   {extra: edit.Mount{Destination: "/data", Source: "tmpfs", Type: "tmpfs"}, want: false},
		"ID within a name":                          {extra: edit.Mount{Destination: "/data", Source: "/srv/xSANDBOX", Type: "bind"}, want: true},
		"another sandbox's ID":                      {extra: edit.Mount{Destination: "/data", Source: "/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/OTHER/x", Type: "bind"}, want: true},
	} {
		r := &Request{SandboxID: "SANDBOX", ContainerID: "CONTAINER", PodUID: "UID", Container: "app", HostIPC: tc.ipc,
			Have: edit.Existing{Mounts: append(append([]edit.Mount(nil), own...), tc.extra)}}
		if got := hasBindMounts(r); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
