// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/pkg/devices"
)

const namedRules = `
sockets:
  roots: [/var/run/vsw]
  named:
    spire:  {path: /run/spire/agent.sock, at: /run/spire/agent.sock}
    admin:  {path: /run/spire/private/admin.sock, at: /run/spire/admin.sock}
    other:  {path: /srv/other/agent.sock, at: /run/spire/agent.sock}
    db:     {path: /var/run/db/db.sock}
    later:  {path: /run/later/deep/s.sock, create: wait}
policy:
  mode: MODE
  rules:
    - name: by-name
      for: {namespaces: [ns]}
      allow: {namedSockets: [spire, other, admin, later, denied-path]}
    - name: by-path
      for: {namespaces: [ns, paths]}
      allow: {sockets: ["/run/db/*", "/var/run/vsw/**"]}
`

func newNamedHost(t *testing.T, staged bool, more string) *host {
	h := newHost(t, "enforce")
	h.replaceEngine(strings.Replace(namedRules, "MODE", "enforce", 1)+more, staged)
	for _, s := range []string{"/run/spire/agent.sock", "/run/spire/private/admin.sock", "/srv/other/agent.sock", "/run/db/db.sock"} {
		h.listen(s)
	}
	return h
}

// view returns the container's devices.json and its variables.
func viewOf(t *testing.T, p *Plan) ([]devices.Device, map[string]string) {
	t.Helper()
	var all []devices.Device
	for _, f := range p.Staging.Files {
		if f.Name == ViewFile {
			testkit.Must(t, json.Unmarshal(f.Data, &all))
		}
	}
	env := map[string]string{}
	for _, e := range p.Set.Env {
		env[e.Name] = e.Value
	}
	return all, env
}

func TestNamedSocketIsStaged(t *testing.T) {
	h := newNamedHost(t, true, "")
	p := h.resolve(newRequest(`[socket:spire, socket:admin, {device: "socket:db", optional: true}]`))
	want := []edit.Socket{
		{Root: "/run/spire", Rel: "agent.sock", At: []string{"named/spire/agent.sock"}},
		{Root: "/run/spire/private", Rel: "admin.sock", At: []string{"named/admin/admin.sock", "named/spire/admin.sock"}},
		{Root: "/run/db", Rel: "db.sock", At: []string{"named/db/db.sock"}},
	}
	for i := range p.Staging.Sockets {
		k := &p.Staging.Sockets[i]
		if !strings.Contains(k.From, "/etc/jackfield/config.yaml: sockets.named.") {
			t.Errorf("socket from %q", k.From)
		}
		k.From, k.Access = "", edit.Access{}
	}
	if d := cmp.Diff(want, p.Staging.Sockets); d != "" {
		t.Errorf("sockets: -want +got\n%s", d)
	}
	var mounts []string
	for _, m := range p.Set.Mounts {
		mounts = append(mounts, m.Destination+" "+strings.TrimPrefix(m.Source, h.dir)+" "+strings.Join(m.Options, ","))
	}
	options := " rbind,ro,rslave,nosuid,nodev,noexec"
	if d := cmp.Diff([]string{"/run/spire /run/jackfield/containers/ctr/named/spire" + options, "/var/run/jackfield /run/jackfield/containers/ctr" + options}, mounts); d != "" {
		t.Errorf("mounts: -want +got\n%s", d)
	}
	view, env := viewOf(t, p)
	if d := cmp.Diff([]devices.Device{
		{Name: "socket:spire", Jackfield: devices.Extension{Socket: "/var/run/jackfield/named/spire/agent.sock", CreatedBy: "host", OwnPath: "/run/spire/agent.sock"}},
		{Name: "socket:admin", Jackfield: devices.Extension{Socket: "/var/run/jackfield/named/admin/admin.sock", CreatedBy: "host", OwnPath: "/run/spire/admin.sock"}},
		{Name: "socket:db", Jackfield: devices.Extension{Socket: "/var/run/jackfield/named/db/db.sock", CreatedBy: "host"}},
	}, view); d != "" {
		t.Errorf("devices.json: -want +got\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"JACKFIELD_DEVICES_FILE": "/var/run/jackfield/devices.json", "JACKFIELD_SOCKET_SPIRE": "/var/run/jackfield/named/spire/agent.sock",
		"JACKFIELD_SOCKET_ADMIN": "/var/run/jackfield/named/admin/admin.sock", "JACKFIELD_SOCKET_DB": "/var/run/jackfield/named/db/db.sock"}, env); d != "" {
		t.Errorf("variables: -want +got\n%s", d)
	}
	if it := p.Items[0]; it.Kind != KindSocket || it.Name != "spire" || it.Outcome != Injected || it.Rule != "by-name" || it.File != "/etc/jackfield/config.yaml" || p.Items[2].Rule != "by-path" {
		t.Errorf("items: %+v", p.Items)
	}
}

// Without staging, the runtime mounts the socket. Its directory may have what the name does not grant.
func TestNamedSocketIsMountedAloneWithoutStaging(t *testing.T) {
	h := newNamedHost(t, false, "")
	h.replaceEngine(strings.Replace(strings.Replace(namedRules, "MODE", "enforce", 1), `"/run/db/*"`, `"/run/db/**", "/run/spire/**"`, 1), false)
	p := h.resolve(newRequest("socket:spire"))
	for _, m := range p.Set.Mounts {
		if source := strings.TrimPrefix(m.Source, h.dir); m.Destination != ContainerDir && source != "/run/spire/agent.sock" {
			t.Errorf("%s is mounted at %s", source, m.Destination)
		}
	}
	if view, _ := viewOf(t, p); len(view) != 1 || view[0].Jackfield.OwnPath != "/run/spire/agent.sock" || !strings.Contains(view[0].Jackfield.Note, "loses it when the host re-creates it") {
		t.Errorf("devices.json: %+v", view)
	}
}

func TestNamedSocketIsDeliveredWhereItsOwnPathIsTaken(t *testing.T) {
	h := newNamedHost(t, true, "")
	r := newRequest("socket:spire")
	r.Have = edit.Existing{Mounts: []edit.Mount{{Destination: "/run", Source: "/empty"}}}
	p := h.resolve(r)
	view, env := viewOf(t, p)
	if env["JACKFIELD_SOCKET_SPIRE"] != "/var/run/jackfield/named/spire/agent.sock" || len(view) != 1 || view[0].Jackfield.OwnPath != "" ||
		!strings.Contains(view[0].Jackfield.Note, "the container has a mount at /run") || len(p.Set.Mounts) != 1 {
		t.Errorf("variables %v, devices.json %+v, mounts %+v", env, view, p.Set.Mounts)
	}
}

// Neither a name that no rule allows nor a denied path is delivered, and who is refused does not learn which names exist.
func TestNamedSocketNeedsGrant(t *testing.T) {
	deny := func(list string) string {
		return "    - name: never\n      for: {namespaces: [\"*\"]}\n      deny: {" + list + "}\n"
	}
	for name, tc := range map[string]struct {
		more, namespace, devices string
		is                       func(error) bool
		words                    []string
	}{
		"granted to another namespace": {namespace: "paths", devices: "socket:spire", is: errdefs.IsPermissionDenied, words: []string{`deny named socket "spire"`, `namedSockets: ["spire"]`, "item 1"}},
		"no rule":                      {namespace: "nobody", devices: "socket:db", is: errdefs.IsPermissionDenied, words: []string{`namedSockets: ["db"]`}},
		"unknown name of the refused":  {namespace: "nobody", devices: "socket:nonesuch", is: errdefs.IsPermissionDenied, words: []string{`namedSockets: ["nonesuch"]`}},
		"unknown name of the granted":  {namespace: "ns", devices: "socket:denied-path", is: errdefs.IsNotFound, words: []string{`names no socket "denied-path"; the node's administrator can add it to sockets.named in /etc/jackfield/config.yaml`}},
		"denied name":                  {more: deny("namedSockets: [\"sp*\"]"), namespace: "ns", devices: "socket:spire", is: errdefs.IsPermissionDenied, words: []string{`denied by rule "never": its deny.namedSockets has "sp*"`}},
		"denied name, granted path":    {more: deny("namedSockets: [db]"), namespace: "paths", devices: "socket:db", is: errdefs.IsPermissionDenied, words: []string{`denied by rule "never"`}},
		"denied path":                  {more: deny("sockets: [\"/run/spire/**\"]"), namespace: "ns", devices: "socket:spire", is: errdefs.IsPermissionDenied, words: []string{`socket "/run/spire/agent.sock"`, `denied by rule "never"`}},
		"denied path, other spelling":  {more: deny("sockets: [\"/var/run/spire/*\"]"), namespace: "ns", devices: "socket:spire", is: errdefs.IsPermissionDenied, words: []string{`denied by rule "never"`}},
		"two sockets at one path":      {namespace: "ns", devices: "socket:spire,socket:other", is: errdefs.IsConflict, words: []string{`another socket at "/run/spire/agent.sock": "/run/spire/agent.sock"`, "sockets.named.other.path"}},
		"an interface's variables":     {namespace: "ns", devices: "socket:spire", is: errdefs.IsConflict, words: []string{`interface "socket" and the container's named sockets would have the same variables, JACKFIELD_SOCKET_*`}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newNamedHost(t, true, tc.more)
			r := newRequest(tc.devices)
			if r.Namespace = tc.namespace; name == "an interface's variables" {
				h.listen("/run/vsw/x")
				h.writeInfo("one", "socket", vhostUserInfo("client", "/var/run/vsw/x"))
			}
			p, err := h.e.Resolve(context.Background(), r)
			if err == nil || p != nil || !tc.is(err) {
				t.Fatalf("plan %+v, error %v", p, err)
			}
			for _, w := range tc.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not have %q: %v", w, err)
				}
			}
			if strings.Contains(strings.ReplaceAll(err.Error(), "administrator", ""), "admin") {
				t.Errorf("the error names another socket: %v", err)
			}
		})
	}
	h := newNamedHost(t, true, "")
	h.replaceEngine(strings.Replace(namedRules, "MODE", "audit", 1), true)
	r := newRequest("socket:db")
	r.Namespace = "nobody"
	if p := h.resolve(r); !strings.Contains(p.Items[0].Audit, `deny named socket "db"`) {
		t.Errorf("audit mode: %+v", p.Items)
	}
}

// A file at the path that is no socket is never delivered, and neither is what a symlink leads to.
func TestNamedSocketIsCheckedOnItsDescriptor(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"a file":      func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"a symlink":   func(path string) error { return os.Symlink("../db/db.sock", path) },
	} {
		h := newNamedHost(t, true, "")
		path := filepath.Join(h.dir, "run/spire/agent.sock")
		testkit.Must(t, os.Remove(path))
		testkit.Must(t, replace(path))
		if p, err := h.e.Resolve(context.Background(), newRequest("socket:spire")); err == nil || !strings.Contains(err.Error(), "sockets.named.spire.path") {
			t.Errorf("%s: plan %+v, error %v", name, p, err)
		}
	}
}

func TestMissingNamedSocketIsRefusedOrAwaited(t *testing.T) {
	h := newNamedHost(t, true, "")
	testkit.Must(t, os.RemoveAll(filepath.Join(h.dir, "run/spire")))
	h.wantRefusal(newRequest("socket:spire"), errdefs.IsNotFound, "/run/spire/agent.sock", "its server has not created this socket yet", "create: wait")
	p := h.resolve(newRequest("socket:later"))
	if k := p.Staging.Sockets; len(k) != 1 || !k[0].Await || filepath.Join(k[0].Root, k[0].Rel) != "/run/later/deep/s.sock" || !strings.Contains(strings.Join(p.Items[0].Notes, ""), "does not exist yet") {
		t.Errorf("awaited: %+v, notes %q", k, p.Items[0].Notes)
	}
	h.replaceEngine(strings.Replace(namedRules, "MODE", "enforce", 1), false)
	h.wantRefusal(newRequest("socket:later"), errdefs.IsNotFound, "create: wait needs sockets.staging: mount")
	h.listen("/run/later/deep/s.sock")
	if k := h.resolve(newRequest("socket:later")).Staging.Sockets; len(k) != 1 || k[0].Root != "/run/later/deep" {
		t.Errorf("once it exists: %+v", k)
	}
}

// A running container keeps its named sockets when a network is added to its pod, also if the name or the grant is gone.
func TestRunningContainerKeepsNamedSocket(t *testing.T) {
	h := newNamedHost(t, true, "")
	created := h.resolve(newRequest("socket:spire"))
	r := newRequest("socket:spire")
	r.Have.Mounts = created.Set.Mounts
	for i := range r.Have.Mounts {
		r.Have.Mounts[i].Origin = edit.Origin{}
	}
	r.HasSocket = func(root, rel string) bool { return root == "/run/spire" && rel == "agent.sock" }
	h.listen("/run/vsw/x")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/x"))
	for _, text := range []string{namedRules, strings.Replace(namedRules, "namedSockets: [spire,", "namedSockets: [", 1)} {
		h.replaceEngine(strings.Replace(text, "MODE", "enforce", 1), true)
		plan, err := h.e.ResolveRunning(context.Background(), r)
		testkit.Must(t, err)
		view, _ := viewOf(t, plan)
		if len(plan.Staging.Sockets) != 2 || plan.Staging.Sockets[0].At[0] != "named/spire/agent.sock" || len(view) != 2 || view[0].Jackfield.OwnPath != "/run/spire/agent.sock" {
			t.Errorf("sockets %+v, devices.json %+v", plan.Staging.Sockets, view)
		}
	}
	h.replaceEngine(strings.Replace(strings.Replace(namedRules, "MODE", "enforce", 1), "    spire: ", "    renamed: ", 1), true)
	plan, err := h.e.ResolveRunning(context.Background(), r)
	testkit.Must(t, err)
	if plan.Items[0].Outcome != Skipped { // then nothing is removed
		t.Errorf("the name is gone: %+v", plan.Items)
	}
}

func TestNamedSocketsCountAsSockets(t *testing.T) {
	limit := "    - name: few\n      for: {namespaces: [\"*\"]}\n      limits: {container: {sockets: 1}}\n"
	h := newNamedHost(t, true, limit)
	h.resolve(newRequest("socket:spire"))
	h.wantRefusal(newRequest("socket:spire,socket:db"), errdefs.IsPermissionDenied, "deny 2 sockets", "limits.container.sockets")
}
