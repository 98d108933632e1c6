// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/sysfs/sysfstest"
)

// configure gives the host another configuration.
func (h *host) configure(yaml string) {
	h.t.Helper()
	cfg, err := config.Parse([]byte(yaml), "/etc/jackfield/config.yaml")
	must(h.t, err)
	e, err := New(h.e.host, cfg, Options{})
	must(h.t, err)
	must(h.t, h.e.Close())
	h.e = e
}

// makeDevices skips a test for want of mknod alone.
func makeDevices(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, sysfstest.ErrNoMknod) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	must(t, err)
}

// A socket whose own directory is the system's is delivered below ContainerDir alone.
func TestOwnPathNeverHidesSystemDirectory(t *testing.T) {
	h := newHost(t, "enforce")
	h.configure(`
sockets: {roots: [/libvsw]}
policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/libvsw/**"]}}]}
`)
	h.listen("/libvsw/p/s")
	h.info("one", "net1", vhost("client", "/libvsw/p/s"))
	p := h.resolve(ask(""))
	for _, m := range p.Set.Mounts {
		if m.Destination == "/libvsw/p" {
			t.Errorf("mount %+v hides a directory of the system", m)
		}
	}
	if notes := strings.Join(p.Items[0].Notes, "; "); !strings.Contains(notes, "could hide") {
		t.Errorf("the notes do not say why: %q", notes)
	}
}

// A UNIX socket's address holds 107 bytes: of the path on the host and of the one in
// the container.
func TestSocketPathsFitAddress(t *testing.T) {
	h := newHost(t, "enforce")
	const root = "/var/run/vsw/"
	h.info("one", "net1", vhost("client", root+"p/"+strings.Repeat("s", 108-len(root)-2)))
	h.refuse(ask(""), errdefs.IsInvalidArgument, "108 bytes", "at most 107")
	// Its name fits on the host, and does not at net/net1/ in the container.
	long := strings.Repeat("s", 107-len(root))
	h.info("one", "net1", vhost("client", root+long))
	h.refuse(ask(""), errdefs.IsInvalidArgument, "the path in the container", "at most 107")
}

func TestSocketPathMustBeClean(t *testing.T) {
	h := newHost(t, "enforce")
	for _, path := range []string{"/var/run/vsw/../secret/s", "/var/run/vsw/a/../b/s", "/var/run/vsw//s", "/var/run/vsw/./s", "var/run/vsw/s", "/var/run/vsw/s/"} {
		p := planner{Engine: h.e}
		if at, err := p.place(path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("path %q: got %+v, %v; want an invalid argument", path, at, err)
		}
	}
}

// A path has a spelling by the socket root's name and one by where its symlink leads.
// What is denied under one is denied, also where the other is allowed.
func TestDenyUnderNameOfSymlinkedRoot(t *testing.T) {
	for _, tc := range []struct{ allow, deny string }{
		{"/run/real/**", "/run/link/**"},
		{"/run/link/**", "/run/real/**"},
	} {
		h := newHost(t, "enforce")
		must(t, os.Mkdir(filepath.Join(h.dir, "run/real"), 0o755))
		must(t, os.Symlink("real", filepath.Join(h.dir, "run/link")))
		h.configure(`
sockets: {roots: [/run/link]}
policy:
  rules:
    - {name: some, for: {namespaces: [ns]}, allow: {sockets: ["` + tc.allow + `"]}}
    - {name: never, for: {namespaces: [ns]}, deny: {sockets: ["` + tc.deny + `"]}}
`)
		h.listen("/run/real/p1/s")
		h.info("one", "net1", vhost("client", "/run/link/p1/s"))
		p := h.resolve(ask(""))
		if it := p.Items[0]; it.Outcome != LeftAlone || !strings.Contains(it.Reason, `denied by rule "never"`) || p.Staging != nil || !p.Set.Empty() {
			t.Errorf("allow %s, deny %s: got %+v", tc.allow, tc.deny, p)
		}
	}
}

// A deny by the name of one socket root holds for a path below another one that leads
// to the same directory, and for a directory that contains it.
func TestDenyUnderNameOfAnotherRoot(t *testing.T) {
	for _, tc := range []struct{ deny, mode, path string }{
		{"/run/alias/pods/secret/**", "client", "/run/real/pods/secret/s"},
		{"/run/alias/pods/secret/**", "client", "/var/run/real/pods/secret/s"},
		{"/var/run/alias/pods/secret/**", "client", "/run/real/pods/secret/s"},
		{"/run/within/**", "client", "/run/real/pods/secret/s"},
		{"/run/within/**", "server", "/run/real/pods/s"},
		{"/run/alias/pods/secret/**", "server", "/run/real/pods/s"},
	} {
		h := newHost(t, "enforce")
		must(t, os.MkdirAll(filepath.Join(h.dir, "run/real/pods/secret"), 0o755))
		must(t, os.Symlink("real", filepath.Join(h.dir, "run/alias")))
		must(t, os.Symlink("real/pods/secret", filepath.Join(h.dir, "run/within")))
		h.configure(`
sockets: {roots: [/run/real, /run/alias, /run/within]}
policy:
  rules:
    - {name: some, for: {namespaces: [ns]}, allow: {sockets: ["/run/real/**"]}}
    - {name: never, for: {namespaces: [ns]}, deny: {sockets: ["` + tc.deny + `"]}}
`)
		h.listen("/run/real/pods/secret/s")
		h.info("one", "net1", vhost(tc.mode, tc.path))
		p, err := h.e.Resolve(t.Context(), ask(""))
		if err == nil && p != nil && (p.Items[0].Outcome != LeftAlone || p.Staging != nil || !p.Set.Empty()) {
			t.Errorf("%+v: got %+v", tc, p)
		}
		if err != nil && !errdefs.IsPermissionDenied(err) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestVhostNetIsKernelsNode(t *testing.T) {
	h := newHost(t, "enforce")
	tree, err := sysfstest.New(h.dir)
	must(t, err)
	makeDevices(t, errors.Join(tree.AddPCI("0000:03:00.1", "vfio-pci", 11), tree.AddVFIO(11, sysfstest.Zero(), sysfstest.Null()),
		tree.AddVhostNet(sysfstest.Zero(), sysfstest.Null()), tree.Node("/dev/mem", 0o600, sysfstest.Zero())))
	r := ask("")
	r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VF=0000:03:00.1"}
	h.info("one", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1","vhost-net":"/dev/mem"}}`)
	h.refuse(r, errdefs.IsInvalidArgument, "pci.vhost-net", `"/dev/mem"`, "/dev/vhost-net")
}

// The node is that of the vDPA device which the kubelet allocated, under the driver
// that device-info names.
func TestVDPADeviceIsAllocatedOne(t *testing.T) {
	h := newHost(t, "enforce")
	h.configure(strings.ReplaceAll(strings.ReplaceAll(rules, `"/dev/vfio/*"`, `"/dev/vhost-vdpa-*"`), "MODE", "enforce"))
	tree, err := sysfstest.New(h.dir)
	must(t, err)
	makeDevices(t, errors.Join(tree.AddPCI("0000:03:00.1", "mlx5_core", 0), tree.AddPCI("0000:03:00.2", "mlx5_core", 0),
		tree.AddVDPA("vdpa1", "vhost_vdpa", "0000:03:00.1", 1, sysfstest.Zero()), tree.AddVDPA("vdpa2", "vhost_vdpa", "0000:03:00.2", 2, sysfstest.Null())))
	r := ask("")
	r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VDPA=0000:03:00.1"}
	info := func(parent, driver string) {
		h.info("one", "net1", `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"`+parent+`","driver":"`+driver+
			`","path":"/dev/vhost-vdpa-1","pci-address":"0000:03:00.1"}}`)
	}
	info("vdpa1", "vhost")
	if p := h.resolve(r); len(p.Set.Devices) != 1 || p.Set.Devices[0].Path != "/dev/vhost-vdpa-1" {
		t.Fatalf("got %+v", p.Set.Devices)
	}
	info("vdpa2", "vhost")
	h.refuse(r, errdefs.IsConflict, `"vdpa2"`, "0000:03:00.2", "0000:03:00.1")
	must(t, tree.AddVDPA("vdpa1", "virtio_vdpa", "0000:03:00.1", 1, sysfstest.Zero()))
	info("vdpa1", "vhost")
	h.refuse(r, errdefs.IsConflict, "vdpa.driver", `"vhost"`, `"virtio"`)
}

// A pod mounts directories and files of the host, not its sockets, pipes and devices.
func TestInjectedMountOfSpecialFileIsRefused(t *testing.T) {
	h := newInjectorHost(t, injectorYAML)
	must(t, unix.Mkfifo(filepath.Join(h.dir, "srv/pipe"), 0o666))
	h.listen("/srv/socket")
	must(t, unix.Mknod(filepath.Join(h.dir, "srv/disk"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	for _, name := range []string{"pipe", "socket", "disk"} {
		h.refuse(injecting("mounts.nri.io", "[{source: /srv/"+name+", destination: /x, options: [bind]}]"), errdefs.IsInvalidArgument,
			"/srv/"+name, "want a directory or file")
	}
}
