// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

const rules = `
sockets: {roots: [/var/run/vsw]}
cdi: {aliases: {v: vendor.com/net}}
dialects:
  - {match: {network: "ns/plugin-*"}, use: virtio-device-plugin}
  - {match: {network: "ns/6wind"}, use: 6wind}
policy:
  mode: MODE
  rules:
    - name: r
      for: {namespaces: [ns]}
      allow: {cdi: ["vendor.com/net=*"], sockets: ["/var/run/vsw/**"], devices: ["/dev/vfio/*"]}
`

// host is a directory tree of a host, with an engine for it.
type host struct {
	t   *testing.T
	dir string
	e   *Engine
}

func newHost(t *testing.T, mode string) *host {
	t.Helper()
	// The path of a UNIX socket must be short, so t.TempDir is not usable.
	dir, err := os.MkdirTemp("", "jf")
	testkit.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	h := &host{t: t, dir: dir}
	for _, d := range []string{"etc/cdi", "run/cdi", "run/vsw", "var", "dev"} {
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	testkit.Must(t, os.Symlink("../run", filepath.Join(dir, "var/run")))
	root, err := hostfs.New(dir)
	testkit.Must(t, err)
	cfg, err := config.Parse([]byte(strings.ReplaceAll(rules, "MODE", mode)), "/etc/jackfield/config.yaml")
	testkit.Must(t, err)
	h.e, err = New(root, cfg, Options{FindSocketDir: staging.SocketDirFinder(root, cfg.StateDir, "")})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, h.e.Close()) })
	h.write("/etc/cdi/v.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","containerEdits":{"env":["SPEC=1"],"hooks":[{"hookName":"prestart","path":"/h"}]},
 "devices":[
  {"name":"a","containerEdits":{"env":["DEV=a"],"deviceNodes":[{"path":"/dev/a","type":"c","major":1,"minor":3}]}},
  {"name":"b","containerEdits":{"env":["DEV=b"],"deviceNodes":[{"path":"/dev/b","type":"c","major":1,"minor":5,"permissions":"r"}]}},
  {"name":"broken","containerEdits":{"env":["BROKEN=1"],"deviceNodes":[{"path":"/dev/missing"}]}}]}`)
	return h
}

func (h *host) write(path, text string) {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	testkit.Must(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	testkit.Must(h.t, os.WriteFile(path, []byte(text), 0o644))
}

func (h *host) listen(path string) {
	h.t.Helper()
	path = filepath.Join(h.dir, path)
	testkit.Must(h.t, os.MkdirAll(filepath.Dir(path), 0o755))
	l, err := net.Listen("unix", path)
	testkit.Must(h.t, err)
	h.t.Cleanup(func() { l.Close() })
}

func (h *host) writeInfo(nad, iface, text string) {
	h.t.Helper()
	h.write(fmt.Sprintf("/run/k8s.cni.cncf.io/devinfo/cni/ns-%s-sb_%s", nad, iface), text)
}

func vhostUserInfo(mode, path string) string {
	return fmt.Sprintf(`{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":%q,"path":%q}}`, mode, path)
}

func newRequest(devices string) *Request {
	r := &Request{SandboxID: "sb", ContainerID: "ctr", Namespace: "ns", Pod: "p", Container: "c"}
	if devices != "" {
		r.Annotations = map[string]string{"devices.jackfield.dev": devices}
	}
	return r
}

func (h *host) resolve(r *Request) *Plan {
	h.t.Helper()
	p, err := h.e.Resolve(context.Background(), r)
	testkit.Must(h.t, err)
	if p == nil {
		h.t.Fatal("no plan")
	}
	return p
}

func (h *host) wantRefusal(r *Request, hasKind func(error) bool, words ...string) error {
	h.t.Helper()
	p, err := h.e.Resolve(context.Background(), r)
	if err == nil || p != nil {
		h.t.Fatalf("plan %+v, error %v; want an error and no plan", p, err)
	}
	var all *Error
	if !errors.As(err, &all) || !hasKind(err) {
		h.t.Errorf("error %v has the wrong kind", err)
	}
	for _, w := range append(words, "ns/p/c") {
		if !strings.Contains(err.Error(), w) {
			h.t.Errorf("the error does not name %q: %v", w, err)
		}
	}
	return err
}

func planEnv(p *Plan) map[string]string {
	m := map[string]string{}
	for _, e := range p.Set.Env {
		m[e.Name] = e.Value
	}
	return m
}

func planOutcomes(p *Plan) map[string]Outcome {
	m := map[string]Outcome{}
	for _, it := range p.Items {
		m[it.Request] = it.Outcome
	}
	return m
}

func TestNoRequestHasNoPlan(t *testing.T) {
	h := newHost(t, "enforce")
	p, err := h.e.Resolve(context.Background(), newRequest(""))
	if p != nil || err != nil {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestSpecLevelEditsAreFirstAndOnce(t *testing.T) {
	h := newHost(t, "enforce")
	for _, devices := range []string{"vendor.com/net=a,vendor.com/net=b", "v=a,vendor.com/net=a,v=b", "[vendor.com/net=a, vendor.com/net=b, vendor.com/net=a]"} {
		p := h.resolve(newRequest(devices))
		var got []string
		for _, e := range p.Set.Env {
			got = append(got, e.Name+"="+e.Value)
		}
		if diff := cmp.Diff([]string{"SPEC=1", "DEV=b"}, got); diff != "" {
			t.Errorf("%s: %s", devices, diff)
		}
		if len(p.Set.Hooks) != 1 || len(p.Set.Devices) != 2 {
			t.Errorf("%s: %+v", devices, p.Set)
		}
		if o := &p.Set.Devices[1].Origin; o.File != "/etc/cdi/v.json" || o.Field != "devices[1].containerEdits.deviceNodes[0]" || o.Rule != "r" || o.Request != `CDI device "vendor.com/net=b"` {
			t.Errorf("origin %+v", o)
		}
	}
}

func TestPlanIsDeterministic(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/p1/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/p1/s"))
	h.writeInfo("two", "net2", vhostUserInfo("server", "/var/run/vsw/p2/s"))
	var first string
	for range 20 {
		data, err := json.Marshal(h.resolve(newRequest("vendor.com/net=b,vendor.com/net=a")))
		testkit.Must(t, err)
		if first == "" {
			first = string(data)
		}
		if string(data) != first {
			t.Fatalf("two plans for one request:\n%s\n%s", first, data)
		}
	}
}

func TestFailedRequestLeavesNoPlan(t *testing.T) {
	h := newHost(t, "enforce")
	h.wantRefusal(newRequest("vendor.com/net=a,vendor.com/net=broken"), errdefs.IsNotFound, "vendor.com/net", "/dev/missing", "devices[2].containerEdits.deviceNodes[0]")
	err := h.wantRefusal(newRequest("vendor.com/net=x,other.com/net=y"), errdefs.IsNotFound, "(1)", "(2)", "vendor.com/net=x", "other.com/net=y")
	if !errdefs.IsPermissionDenied(err) {
		t.Errorf("the second error is missing: %v", err)
	}
	p, err := h.e.Explain(context.Background(), newRequest("vendor.com/net=a,vendor.com/net=broken"))
	if err == nil || !p.Set.Empty() || len(p.Items) != 2 || p.Items[0].Outcome != Injected || p.Items[1].Outcome != Failed {
		t.Errorf("Explain: plan %+v, error %v", p, err)
	}
}

func TestFailedOptionalRequestLeavesNoEdits(t *testing.T) {
	h := newHost(t, "enforce")
	p := h.resolve(newRequest("[{device: vendor.com/net=broken, optional: true}, vendor.com/net=a]"))
	if _, found := planEnv(p)["BROKEN"]; found || planEnv(p)["SPEC"] != "1" || len(p.Set.Hooks) != 1 {
		t.Errorf("edits %+v", p.Set)
	}
	if o := planOutcomes(p); o[`CDI device "vendor.com/net=broken"`] != Skipped || o[`CDI device "vendor.com/net=a"`] != Injected {
		t.Errorf("outcomes are %v", o)
	}
}

// An optional request that the adapter cannot deliver is skipped. A required one stays in the plan: the adapter
// reports the error.
func TestUndeliverableOptionalRequestIsSkipped(t *testing.T) {
	h := newHost(t, "enforce")
	for devices, want := range map[string]Outcome{"[{device: vendor.com/net=b, optional: true}, vendor.com/net=a]": Skipped, "[vendor.com/net=b, vendor.com/net=a]": Injected} {
		r := newRequest(devices)
		r.CanDeliver = func(set *edit.Set, request string) error {
			for i := range set.Devices {
				if o := &set.Devices[i].Origin; o.Request == request && strings.Contains(request, "net=b") {
					return fmt.Errorf("%s: not here: %w", o, errdefs.ErrNotImplemented)
				}
			}
			return nil
		}
		p := h.resolve(r)
		if o := planOutcomes(p); o[`CDI device "vendor.com/net=b"`] != want || o[`CDI device "vendor.com/net=a"`] != Injected {
			t.Errorf("%s: outcomes are %v", devices, o)
		}
		if planEnv(p)["SPEC"] != "1" || len(p.Set.Hooks) != 1 || want == Skipped && len(p.Set.Devices) != 1 {
			t.Errorf("%s: edits %+v", devices, p.Set)
		}
	}
}

func TestAuditModeGrantsAndReports(t *testing.T) {
	h := newHost(t, "audit")
	r := newRequest("vendor.com/net=a")
	r.Namespace = "elsewhere"
	p := h.resolve(r)
	if len(p.Set.Devices) != 1 || !strings.Contains(p.Items[0].Audit, "elsewhere") {
		t.Errorf("got %+v", p)
	}
	// In audit mode, too, a discovered attachment that no rule grants is unmanaged.
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/none/s"))
	r.Annotations = nil
	p = h.resolve(r)
	if len(p.Items) != 1 || p.Items[0].Outcome != Unmanaged {
		t.Errorf("got %+v", p.Items)
	}
	// The reason has the rule to add.
	for _, want := range []string{"audit mode delivers nothing that was not asked for", "add to policy.rules in /etc/jackfield/config.yaml",
		`for: {namespaces: ["elsewhere"]}`, `allow: {sockets: ["/var/run/vsw/none/s"]}`} {
		if !strings.Contains(p.Items[0].Reason, want) {
			t.Errorf("the reason lacks %q: %s", want, p.Items[0].Reason)
		}
	}
}

func TestNetworksAnnotation(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/p1/s")
	h.listen("/run/vsw/p2/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/p1/s"))
	h.writeInfo("two", "net2", vhostUserInfo("client", "/var/run/vsw/p2/s"))
	for value, want := range map[string]string{"auto": "net1 net2", "none": "", "net2": "net2", "ns/one": "net1", "one,net2,one": "net1 net2"} {
		r := newRequest("")
		r.Annotations = map[string]string{"networks.jackfield.dev": value}
		p := h.resolve(r)
		var got []string
		for _, name := range []string{"NET1", "NET2"} {
			if planEnv(p)["JACKFIELD_"+name+"_TYPE"] != "" {
				got = append(got, strings.ToLower(name))
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("annotation %s: interfaces %v, want %s", value, got, want)
		}
		if len(got) == 0 && (p.Staging != nil || !p.Set.Empty()) {
			t.Errorf("annotation %s: plan %+v, want no edits", value, p)
		}
	}
}

func TestDialectChangesMeaningOfDeviceInfo(t *testing.T) {
	h := newHost(t, "enforce")
	// The mode of virtio-device-plugin is the host's: with "client", the application creates the socket.
	h.writeInfo("plugin-a", "net1", vhostUserInfo("client", "/var/run/vsw/p1/s"))
	p := h.resolve(newRequest(""))
	if got := planEnv(p)["JACKFIELD_NET1_EAL"]; !strings.HasSuffix(got, ",server=1") || len(p.Staging.SocketDirs) != 1 {
		t.Errorf("EAL arguments %q, staging %+v", got, p.Staging)
	}
	// The path of 6WIND is a path in the container, where the directory is already mounted.
	h.writeInfo("6wind", "net2", vhostUserInfo("server", "/run/6wind/s"))
	h.wantRefusal(newRequest(""), errdefs.IsFailedPrecondition, "6wind", "/run/6wind/s")
	r := newRequest("")
	r.Have.Mounts = []edit.Mount{{Destination: "/run/6wind", Source: "/x"}}
	if got := planEnv(h.resolve(r))["JACKFIELD_NET2_SOCKET"]; got != "/run/6wind/s" {
		t.Errorf("socket is %q", got)
	}
}

func TestSocketIsNotMountedAtOwnPathOverOtherMounts(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/p1/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/p1/s"))
	for dst, want := range map[string]bool{"/data": true, "/run/vsw/p1": false, "/run/vsw": false, "/var/run/vsw/p1/x": false, "/var": false} {
		r := newRequest("")
		r.Have.Mounts = []edit.Mount{{Destination: dst, Source: "/volume"}}
		p := h.resolve(r)
		own := false
		for _, m := range p.Set.Mounts {
			own = own || m.Destination == "/var/run/vsw/p1"
		}
		if own != want {
			t.Errorf("mount at %s: socket at its own path is %v", dst, own)
		}
		if !want && (len(p.Items[0].Notes) == 0 || !strings.Contains(string(p.Staging.Files[0].Data), "not at its own path")) {
			t.Errorf("mount at %s: no note in %+v", dst, p.Items)
		}
	}
}

// Two networks have one socket: it is bound once at its own path.
func TestSocketOfTwoNetworksIsOnceAtItsOwnPath(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceEngine(strings.ReplaceAll(rules, "MODE", "enforce"), true)
	h.listen("/run/vsw/p1/s")
	for name, iface := range map[string]string{"one": "net1", "two": "net2", "three": "net3"} {
		h.writeInfo(name, iface, vhostUserInfo("client", "/var/run/vsw/p1/s"))
	}
	p := h.resolve(newRequest(""))
	var places []string
	for _, k := range p.Staging.Sockets {
		places = append(places, k.At...)
	}
	if want := []string{"net/net1/s", "net/net2/s", "net/net3/s"}; !slices.Equal(places, want) {
		t.Errorf("sockets are bound at %q, want %q", places, want)
	}
	if n := strings.Count(string(p.Staging.Files[0].Data), `"own-path": "/var/run/vsw/p1/s"`); n != 3 {
		t.Errorf("%d networks have the socket at its own path: %s", n, p.Staging.Files[0].Data)
	}
}

func TestReservedDirectories(t *testing.T) {
	for _, d := range []string{"/", "/etc", "/etc/x", "/usr/lib/x", "/lib", "/lib64/x", "/libexec", "/proc/1", "/dev/vfio", "/run", "/var/run", "/tmp", "/home", "/var/lib", "/../etc"} {
		if reserved.DirInContainer(edit.Clean(d)) == "" {
			t.Errorf("%s is not reserved", d)
		}
	}
	for _, d := range []string{"/run/x", "/var/run/vsw/p", "/opt/x", "/data", "/tmp/x", "/etcetera"} {
		if r := reserved.DirInContainer(edit.Clean(d)); r != "" {
			t.Errorf("%s is reserved for %s", d, r)
		}
	}
}

func TestInterfacesWithSameVariablesConflict(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/p1/s")
	h.writeInfo("one", "net.1", vhostUserInfo("client", "/var/run/vsw/p1/s"))
	h.writeInfo("two", "net-1", vhostUserInfo("client", "/var/run/vsw/p1/s"))
	h.wantRefusal(newRequest(""), errdefs.IsConflict, "net.1", "net-1", "JACKFIELD_NET_1")
}

func TestMemifHasEALArguments(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/p1/s")
	h.writeInfo("one", "net1", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"/var/run/vsw/p1/s"}}`)
	h.writeInfo("two", "net2", `{"type":"memif","version":"1.1.0","memif":{"role":"master","mode":"ethernet","path":"/var/run/vsw/p2/s"}}`)
	h.writeInfo("three", "net3", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ethernet","path":"@abstract"}}`)
	h.writeInfo("four", "net4", `{"type":"memif","version":"1.1.0","memif":{"role":"slave","mode":"ip","path":"@ip"}}`)
	p := h.resolve(newRequest(""))
	for name, want := range map[string]string{
		"JACKFIELD_NET1_EAL":    "--vdev=net_memif0,role=client,id=0,socket=/var/run/jackfield/net/net1/s,socket-abstract=no",
		"JACKFIELD_NET2_EAL":    "--vdev=net_memif1,role=server,id=0,socket=/var/run/jackfield/net/net2/s,socket-abstract=no",
		"JACKFIELD_NET3_EAL":    "--vdev=net_memif2,role=client,id=0,socket=abstract,socket-abstract=yes",
		"JACKFIELD_NET3_SOCKET": "@abstract",
		"JACKFIELD_NET4_EAL":    "", // DPDK's memif driver supports Ethernet only
	} {
		if got := planEnv(p)[name]; got != want {
			t.Errorf("%s=%q, want %q", name, got, want)
		}
	}
}

func TestCancelledContextIsAnError(t *testing.T) {
	h := newHost(t, "enforce")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if p, err := h.e.Resolve(ctx, newRequest("vendor.com/net=a")); p != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v", p, err)
	}
}

func TestSocketBelowRootWithAndWithoutSymlink(t *testing.T) {
	h := newHost(t, "enforce")
	other, err := config.Parse([]byte(strings.ReplaceAll(strings.ReplaceAll(rules, "/var/run/vsw", "/run/vsw"), "MODE", "enforce")), "f")
	testkit.Must(t, err)
	e, err := New(h.e.host, other, Options{FindSocketDir: staging.SocketDirFinder(h.e.host, other.StateDir, "")})
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, e.Close()) })
	h.listen("/run/vsw/p1/s")
	for name, engine := range map[string]*Engine{"root /var/run/vsw": h.e, "root /run/vsw": e} {
		for _, path := range []string{"/var/run/vsw/p1/s", "/run/vsw/p1/s"} {
			h.writeInfo("one", "net1", vhostUserInfo("client", path))
			if p, err := engine.Resolve(context.Background(), newRequest("")); err != nil || p.Items[0].Outcome != Injected {
				t.Errorf("%s, path %s: %+v, %v", name, path, p, err)
			}
		}
	}
}

func TestUnallocatedDeviceFailsContainerThatRequestsIt(t *testing.T) {
	h := newHost(t, "enforce")
	h.writeInfo("one", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1"}}`)
	r := newRequest("")
	r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
	if p := h.resolve(r); p.Items[0].Outcome != Unmanaged {
		t.Errorf("requested for the pod: outcome %s", p.Items[0].Outcome)
	}
	r.Annotations = map[string]string{"networks.jackfield.dev/container.c": "net1"}
	h.wantRefusal(r, errdefs.IsFailedPrecondition, "net1", "networks.jackfield.dev/container.c", "resources.limits")
}

// If the runtime reports the container's user, the device nodes belong to that user. The container may read and
// write the nodes of its networks, but not create them.
func TestNodesBelongToContainerUser(t *testing.T) {
	h := newHost(t, "enforce")
	tree, err := sysfstest.New(h.dir)
	testkit.Must(t, err)
	err = errors.Join(tree.AddPCI("0000:03:00.1", "vfio-pci", 11), tree.AddVFIO(11, sysfstest.Zero(), sysfstest.Null()))
	if errors.Is(err, sysfstest.ErrNoMknod) {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	testkit.Must(t, err)
	h.writeInfo("one", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1"}}`)
	r := newRequest("vendor.com/net=a")
	r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VF=0000:03:00.1"}
	r.User = &User{UID: 1000, GID: 2000}
	p := h.resolve(r)
	if len(p.Set.Devices) != 3 {
		t.Fatalf("device nodes %+v", p.Set.Devices)
	}
	for _, d := range p.Set.Devices {
		if d.UID == nil || *d.UID != 1000 || d.GID == nil || *d.GID != 2000 {
			t.Errorf("%s belongs to %v:%v", d.Path, d.UID, d.GID)
		}
		if strings.HasPrefix(d.Path, "/dev/vfio/") && d.Access != "rw" {
			t.Errorf("%s has access %q", d.Path, d.Access)
		}
	}
}

// A network whose socket is that of another port than the allocated one is refused. With a dialect it is accepted,
// because the two files may describe one socket differently.
func TestSocketOfAnotherPortIsRefused(t *testing.T) {
	for nad, refused := range map[string]bool{"one": true, "plugin-a": false} {
		h := newHost(t, "enforce")
		h.listen("/run/vsw/port0/s")
		h.writeInfo(nad, "net1", vhostUserInfo("server", "/var/run/vsw/port0/s"))
		h.write("/run/k8s.cni.cncf.io/devinfo/dp/vendor.com-port-port2-device.json", vhostUserInfo("server", "/var/run/vsw/port2/s"))
		h.write("/var/lib/cni/multus/sb", `[{"Name":"cbr0"},{"Name":"ns/`+nad+`","ifnameRequest":"net1","deviceID":"port2","resourceName":"vendor.com/port"}]`)
		if refused {
			h.wantRefusal(newRequest(""), errdefs.IsConflict, "which socket net1 is", "/var/run/vsw/port0/s", "/var/run/vsw/port2/s", "port2", "dialect")
		} else if p := h.resolve(newRequest("")); planEnv(p)["JACKFIELD_NET1_TYPE"] == "" {
			t.Errorf("with a dialect: items %+v", p.Items)
		}
	}
}

// Open vSwitch creates the sockets of all tenants in one directory, and names each after its port.
func TestSocketOfAnotherAttachmentsPortIsDenied(t *testing.T) {
	for sandbox, granted := range map[string]bool{"sb": true, "another": false} {
		h := newHost(t, "enforce")
		socket := "/var/run/vsw/" + name.Port(sandbox, "net1")
		h.listen(strings.TrimPrefix(socket, "/var"))
		h.writeInfo("one", "net1", vhostUserInfo("client", socket))
		if granted {
			if p := h.resolve(newRequest("")); planEnv(p)["JACKFIELD_NET1_TYPE"] == "" {
				t.Errorf("its own port: items %+v", p.Items)
			}
			continue
		}
		h.wantRefusal(newRequest(""), errdefs.IsPermissionDenied, "belongs to the port of another network attachment", socket)
	}
}

// An error is visible in the pod's events. It does not name devices that policy denies to the pod.
func TestDenialOfUnknownDeviceNamesNoOther(t *testing.T) {
	h := newHost(t, "enforce")
	r := newRequest("vendor.com/net=aa")
	r.Namespace = "elsewhere"
	_, err := h.e.Resolve(t.Context(), r)
	var refused *policy.RefusedError
	if !errors.As(err, &refused) || strings.Contains(err.Error(), "nearest") || strings.Contains(err.Error(), "/etc/cdi") {
		t.Errorf("got %v", err)
	}
}

func TestDenialNamesConfiguration(t *testing.T) {
	root, err := hostfs.New(t.TempDir())
	testkit.Must(t, err)
	cfg, err := config.Parse([]byte("policy: {mode: enforce}\n"), "/etc/jackfield/config.yaml")
	testkit.Must(t, err)
	e, err := New(root, cfg, Options{FindSocketDir: staging.SocketDirFinder(root, cfg.StateDir, ""), Once: true, ConfigName: "config.yaml of ConfigMap jackfield"})
	testkit.Must(t, err)
	defer e.Close()
	_, err = e.Resolve(t.Context(), newRequest("vendor.com/net=a"))
	if err == nil || !strings.Contains(err.Error(), "add to policy.rules in config.yaml of ConfigMap jackfield:") {
		t.Errorf("got %v", err)
	}
}

// TestProcessOfOneRequestGetsTheSame compares an engine that parses only the CDI files of the requested devices with one
// that knows all.
func TestProcessOfOneRequestGetsTheSame(t *testing.T) {
	h := newHost(t, "enforce")
	spec := func(kind string, names ...string) string {
		for i, name := range names {
			names[i] = fmt.Sprintf(`{"name":%q,"containerEdits":{"env":["V=%s"]}}`, name, name)
		}
		return fmt.Sprintf(`{"cdiVersion":"0.5.0","kind":%q,"devices":[%s]}`, kind, strings.Join(names, ","))
	}
	h.write("/etc/cdi/other.json", spec("vendor.com/other", "a"))
	h.write("/etc/cdi/escaped.json", strings.ReplaceAll(spec("vendor.com/net", "e", "d"), "/", `\u002f`))
	h.write("/etc/cdi/conflict-1.json", spec("vendor.com/net", "c", "d"))
	h.write("/etc/cdi/conflict-2.json", spec("vendor.com/net", "c"))
	h.write("/etc/cdi/bad.json", `{"cdiVersion":"0.5.0","kind":"vendor.com/net","devices":[{"name":"f"}]}`)
	h.write("/etc/cdi/bad-other.json", `{"kind":"vendor.com/other"}`)
	h.write("/run/cdi/v.json", spec("vendor.com/net", "b"))
	once, err := New(h.e.host, h.e.cfg, Options{Once: true})
	testkit.Must(t, err)
	defer once.Close()
	describe := func(e *Engine, devices string) string {
		p, err := e.Resolve(t.Context(), newRequest(devices))
		text, marshalErr := json.Marshal(p)
		testkit.Must(t, marshalErr)
		return fmt.Sprintf("%s\n%v", text, err)
	}
	for _, devices := range []string{
		"vendor.com/net=a", "vendor.com/net=a,vendor.com/net=b", "vendor.com/net=e", "vendor.com/net=d", "vendor.com/net=c", "vendor.com/net=f",
		"vendor.com/net=missing", "vendor.com/net=a,vendor.com/net=missing", "vendor.com/net=all", "vendor.com/none=all", "v=b", "v=all",
		`[{device: "vendor.com/net=missing", optional: true}, "vendor.com/net=a"]`,
	} {
		if diff := cmp.Diff(describe(h.e, devices), describe(once, devices)); diff != "" {
			t.Errorf("%s: %s", devices, diff)
		}
	}
}
