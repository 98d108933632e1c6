// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

// replaceConfig replaces the engine with one of another configuration.
func (h *host) replaceConfig(yaml string) {
	h.t.Helper()
	cfg, err := config.Parse([]byte(yaml), "/etc/jackfield/config.yaml")
	testkit.Must(h.t, err)
	e, err := New(h.e.host, cfg, Options{FindSocketDir: staging.SocketDirFinder(h.e.host, cfg.StateDir, "")})
	testkit.Must(h.t, err)
	testkit.Must(h.t, h.e.Close())
	h.e = e
}

// skipWithoutMknod skips the test if device nodes cannot be created, and fails it on any other error.
func skipWithoutMknod(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, sysfstest.ErrNoMknod) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	testkit.Must(t, err)
}

// A socket in a system directory is delivered below ContainerDir only.
func TestOwnPathNeverHidesSystemDirectory(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceConfig(`
sockets: {roots: [/libvsw]}
policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {sockets: ["/libvsw/**"]}}]}
`)
	h.listen("/libvsw/p/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/libvsw/p/s"))
	p := h.resolve(newRequest(""))
	for _, m := range p.Set.Mounts {
		if m.Destination == "/libvsw/p" {
			t.Errorf("mount %+v hides a system directory", m)
		}
	}
	if notes := strings.Join(p.Items[0].Notes, "; "); !strings.Contains(notes, "could hide") {
		t.Errorf("notes %q lack the reason", notes)
	}
}

// The address of a UNIX socket has at most 107 bytes. The limit applies to the path on the host and to the
// path in the container.
func TestSocketPathsFitAddress(t *testing.T) {
	h := newHost(t, "enforce")
	const root = "/var/run/vsw/"
	h.writeInfo("one", "net1", vhostUserInfo("client", root+"p/"+strings.Repeat("s", 108-len(root)-2)))
	h.wantRefusal(newRequest(""), errdefs.IsInvalidArgument, "108 bytes", "at most 107")
	// The path is short enough on the host, but too long below net/net1/ in the container.
	long := strings.Repeat("s", 107-len(root))
	h.writeInfo("one", "net1", vhostUserInfo("client", root+long))
	h.wantRefusal(newRequest(""), errdefs.IsInvalidArgument, "the path in the container", "at most 107")
}

func TestSocketPathMustBeClean(t *testing.T) {
	h := newHost(t, "enforce")
	for _, path := range []string{"/var/run/vsw/../secret/s", "/var/run/vsw/a/../b/s", "/var/run/vsw//s", "/var/run/vsw/./s", "var/run/vsw/s", "/var/run/vsw/s/"} {
		if at, err := h.e.roots.locate("", path); !errdefs.IsInvalidArgument(err) {
			t.Errorf("path %q: got %+v, %v; want an invalid argument", path, at, err)
		}
	}
}

// With a symlinked socket root, a path has two names: with the symlink and resolved. A deny rule for one
// name denies the path even if a rule allows the other name.
func TestDenyUnderNameOfSymlinkedRoot(t *testing.T) {
	for _, tc := range []struct{ allow, deny string }{
		{"/run/real/**", "/run/link/**"},
		{"/run/link/**", "/run/real/**"},
	} {
		h := newHost(t, "enforce")
		testkit.Must(t, os.Mkdir(filepath.Join(h.dir, "run/real"), 0o755))
		testkit.Must(t, os.Symlink("real", filepath.Join(h.dir, "run/link")))
		h.replaceConfig(`
sockets: {roots: [/run/link]}
policy:
  rules:
    - {name: some, for: {namespaces: [ns]}, allow: {sockets: ["` + tc.allow + `"]}}
    - {name: never, for: {namespaces: [ns]}, deny: {sockets: ["` + tc.deny + `"]}}
`)
		h.listen("/run/real/p1/s")
		h.writeInfo("one", "net1", vhostUserInfo("client", "/run/link/p1/s"))
		p := h.resolve(newRequest(""))
		if it := p.Items[0]; it.Outcome != Unmanaged || !strings.Contains(it.Reason, `denied by rule "never"`) || p.Staging != nil || !p.Set.Empty() {
			t.Errorf("allow %s, deny %s: got %+v", tc.allow, tc.deny, p)
		}
	}
}

// A deny rule with the name of one socket root also applies to a path below another root that leads to the
// same directory, and to a directory that contains the path.
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
		testkit.Must(t, os.MkdirAll(filepath.Join(h.dir, "run/real/pods/secret"), 0o755))
		testkit.Must(t, os.Symlink("real", filepath.Join(h.dir, "run/alias")))
		testkit.Must(t, os.Symlink("real/pods/secret", filepath.Join(h.dir, "run/within")))
		h.replaceConfig(`
sockets: {roots: [/run/real, /run/alias, /run/within]}
policy:
  rules:
    - {name: some, for: {namespaces: [ns]}, allow: {sockets: ["/run/real/**"]}}
    - {name: never, for: {namespaces: [ns]}, deny: {sockets: ["` + tc.deny + `"]}}
`)
		h.listen("/run/real/pods/secret/s")
		h.writeInfo("one", "net1", vhostUserInfo(tc.mode, tc.path))
		p, err := h.e.Resolve(t.Context(), newRequest(""))
		if err == nil && p != nil && (p.Items[0].Outcome != Unmanaged || p.Staging != nil || !p.Set.Empty()) {
			t.Errorf("%+v: got %+v", tc, p)
		}
		if err != nil && !errdefs.IsPermissionDenied(err) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func TestVhostNetPathMustBeKernelsNode(t *testing.T) {
	h := newHost(t, "enforce")
	tree, err := sysfstest.New(h.dir)
	testkit.Must(t, err)
	skipWithoutMknod(t, errors.Join(tree.AddPCI("0000:03:00.1", "vfio-pci", 11), tree.AddVFIO(11, sysfstest.Zero(), sysfstest.Null()),
		tree.AddVhostNet(sysfstest.Zero(), sysfstest.Null()), tree.Node("/dev/mem", 0o600, sysfstest.Zero())))
	r := newRequest("")
	r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VF=0000:03:00.1"}
	h.writeInfo("one", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1","vhost-net":"/dev/mem"}}`)
	h.wantRefusal(r, errdefs.IsInvalidArgument, "pci.vhost-net", `"/dev/mem"`, "/dev/vhost-net")
}

// The container gets the node of the vDPA device that the kubelet allocated. device-info must name this
// device and its driver.
func TestVDPADeviceMustBeAllocatedOne(t *testing.T) {
	h := newHost(t, "enforce")
	h.replaceConfig(strings.ReplaceAll(strings.ReplaceAll(rules, `"/dev/vfio/*"`, `"/dev/vhost-vdpa-*"`), "MODE", "enforce"))
	tree, err := sysfstest.New(h.dir)
	testkit.Must(t, err)
	skipWithoutMknod(t, errors.Join(tree.AddPCI("0000:03:00.1", "mlx5_core", 0), tree.AddPCI("0000:03:00.2", "mlx5_core", 0),
		tree.AddVDPA("vdpa1", "vhost_vdpa", "0000:03:00.1", 1, sysfstest.Zero()), tree.AddVDPA("vdpa2", "vhost_vdpa", "0000:03:00.2", 2, sysfstest.Null())))
	r := newRequest("")
	r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VDPA=0000:03:00.1"}
	writeVDPAInfo := func(parent, driver string) {
		h.writeInfo("one", "net1", `{"type":"vdpa","version":"1.1.0","vdpa":{"parent-device":"`+parent+`","driver":"`+driver+
			`","path":"/dev/vhost-vdpa-1","pci-address":"0000:03:00.1"}}`)
	}
	writeVDPAInfo("vdpa1", "vhost")
	if p := h.resolve(r); len(p.Set.Devices) != 1 || p.Set.Devices[0].Path != "/dev/vhost-vdpa-1" {
		t.Fatalf("got %+v", p.Set.Devices)
	}
	writeVDPAInfo("vdpa2", "vhost")
	h.wantRefusal(r, errdefs.IsConflict, `"vdpa2"`, "0000:03:00.2", "0000:03:00.1")
	testkit.Must(t, tree.AddVDPA("vdpa1", "virtio_vdpa", "0000:03:00.1", 1, sysfstest.Zero()))
	writeVDPAInfo("vdpa1", "vhost")
	h.wantRefusal(r, errdefs.IsConflict, "vdpa.driver", `"vhost"`, `"virtio"`)
}

// A pod can mount directories and regular files of the host, but no sockets, pipes and devices.
func TestInjectedMountOfSpecialFileIsRefused(t *testing.T) {
	h := newInjectorHost(t, injectorYAML)
	testkit.Must(t, unix.Mkfifo(filepath.Join(h.dir, "srv/pipe"), 0o666))
	h.listen("/srv/socket")
	testkit.Must(t, unix.Mknod(filepath.Join(h.dir, "srv/disk"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	for _, name := range []string{"pipe", "socket", "disk"} {
		h.wantRefusal(requestWithAnnotation("mounts.nri.io", "[{source: /srv/"+name+", destination: /x, options: [bind]}]"), errdefs.IsInvalidArgument,
			"/srv/"+name, "must be a directory or file")
	}
}
