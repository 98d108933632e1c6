// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const injectorYAML = `
compat: {deviceInjector: true}
policy:
  rules:
    - name: r
      for: {namespaces: [ns]}
      allow:
        devices: ["/dev/n*"]
        mounts: [{source: "/srv/**"}]
        cdi: ["vendor.com/net=a"]
`

func newInjectorHost(t *testing.T, yaml string) *host {
	h := newHost(t, "enforce")
	root, err := hostfs.New(h.dir)
	testkit.Must(t, err)
	cfg, err := config.Parse([]byte(yaml), "/etc/jackfield/config.yaml")
	testkit.Must(t, err)
	e, err := New(root, cfg, Options{FindSocketDir: staging.SocketDirFinder(root, cfg.StateDir, "")})
	testkit.Must(t, err)
	testkit.Must(t, h.e.Close())
	h.e = e
	for _, dev := range []string{"null", "sda"} {
		if err := unix.Mknod(filepath.Join(h.dir, "dev", dev), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))); err != nil {
			t.Skipf("cannot make a device node: %v", err)
		}
	}
	testkit.Must(t, os.MkdirAll(filepath.Join(h.dir, "srv/data"), 0o755))
	testkit.Must(t, os.MkdirAll(filepath.Join(h.dir, "etc/secret"), 0o755))
	testkit.Must(t, os.Symlink("../etc/secret", filepath.Join(h.dir, "srv/link")))
	testkit.Must(t, os.Symlink("null", filepath.Join(h.dir, "dev/nlink")))
	return h
}

func requestWithAnnotation(key, value string) *Request {
	r := newRequest("")
	r.Annotations = map[string]string{key: value}
	return r
}

// The annotations of NRI's device-injector have the same effect as in that plugin.
func TestDeviceInjectorAnnotations(t *testing.T) {
	h := newInjectorHost(t, injectorYAML)
	r := requestWithAnnotation("devices.nri.io/container.c", "- path: /dev/null\n  type: c\n  major: 1\n  minor: 3\n  file_mode: 0600\n  uid: 7\n")
	r.Annotations["mounts.noderesource.dev/pod"] = "- source: /srv/data\n  destination: /data\n  type: bind\n  options: [rbind, ro]\n"
	r.Annotations["cdi-devices.nri.io"] = "- vendor.com/net=a"
	p := h.resolve(r)
	if len(p.Set.Devices) != 2 || len(p.Set.Mounts) != 1 {
		t.Fatalf("set %+v", p.Set)
	}
	if d := p.Set.Devices[0]; d.Path != "/dev/null" || d.Major != 1 || d.Minor != 3 || *d.FileMode != 0o600 || *d.UID != 7 || d.Access != "rw" || d.Origin.Rule != "r" {
		t.Errorf("device %+v", d)
	}
	if m := p.Set.Mounts[0]; m.Source != filepath.Join(h.dir, "srv/data") || m.Destination != "/data" || strings.Join(m.Options, ",") != "rbind,ro,nosuid,nodev" {
		t.Errorf("mount %+v", m)
	}
}

// Where policy grants read-only mounts, a recursive bind mount becomes a plain one: mounts below the source could
// be writable.
func TestReadOnlyMountsAreReadOnlyBelow(t *testing.T) {
	yaml := strings.Replace(injectorYAML, `{source: "/srv/**"}`, `{source: "/srv/**", readOnly: true}`, 1)
	for options, want := range map[string]string{
		"[rbind, ro]": "bind,ro,nosuid,nodev", "[ro, rbind, rbind]": "ro,bind,bind,nosuid,nodev", "[bind, ro]": "bind,ro,nosuid,nodev",
		"[rbind, ro, rslave]": "bind,ro,rslave,nosuid,nodev",
	} {
		h := newInjectorHost(t, yaml)
		p := h.resolve(requestWithAnnotation("mounts.nri.io", "- {source: /srv/data, destination: /data, options: "+options+"}"))
		if m := p.Set.Mounts[0]; strings.Join(m.Options, ",") != want || strings.Contains(options, "rbind") != (len(p.Items[0].Notes) == 1) {
			t.Errorf("%s: mount %+v, notes %q", options, m, p.Items[0].Notes)
		}
		h.wantRefusal(requestWithAnnotation("mounts.nri.io", "- {source: /srv/data, destination: /data, options: "+strings.Replace(options, "ro", "ro, rw", 1)+"}"), errdefs.IsPermissionDenied, "deny mount")
	}
	h := newInjectorHost(t, strings.Replace(yaml, "policy:", "policy:\n  mode: audit", 1))
	p := h.resolve(requestWithAnnotation("mounts.nri.io", "- {source: /srv/data, destination: /data, options: [rbind, ro]}"))
	if it := p.Items[0]; it.Audit != "" || strings.Join(p.Set.Mounts[0].Options, ",") != "bind,ro,nosuid,nodev" {
		t.Errorf("in mode audit: %+v, %+v", it, p.Set.Mounts[0])
	}
}

func TestHostileDeviceInjectorAnnotations(t *testing.T) {
	h := newInjectorHost(t, injectorYAML)
	for name, tc := range map[string]struct {
		key, value string
		is         func(error) bool
		words      []string
	}{
		"number of another node":      {"devices.nri.io", "[{path: /dev/null, type: c, major: 8, minor: 0}]", errdefs.IsConflict, []string{"8:0", "1:3", "never taken"}},
		"another type":                {"devices.nri.io", "[{path: /dev/null, type: b, major: 1, minor: 3}]", errdefs.IsConflict, []string{"b 1:3"}},
		"missing node":                {"devices.nri.io", "[{path: /dev/new, type: c, major: 1, minor: 3}]", errdefs.IsNotFound, []string{"never taken"}},
		"symlink to a node":           {"devices.nri.io", "[{path: /dev/nlink, type: c, major: 1, minor: 3}]", errdefs.IsPermissionDenied, []string{"symlink"}},
		"not granted":                 {"devices.nri.io", "[{path: /dev/sda, type: c, major: 1, minor: 3}]", errdefs.IsPermissionDenied, []string{`deny device node "/dev/sda"`}},
		"directory instead of a node": {"devices.nri.io", "[{path: /srv/data, type: c, major: 1, minor: 3}]", errdefs.IsPermissionDenied, []string{"/srv/data"}},
		"mount not granted":           {"mounts.nri.io", "[{source: /etc, destination: /x, options: [bind]}]", errdefs.IsPermissionDenied, []string{`deny mount "/etc" at "/x"`}},
		"symlink":                     {"mounts.nri.io", "[{source: /srv/link, destination: /x, options: [bind]}]", errdefs.IsPermissionDenied, []string{"symlink"}},
		"over a system directory":     {"mounts.nri.io", "[{source: /srv/data, destination: /etc/x, options: [bind]}]", errdefs.IsPermissionDenied, []string{"could hide"}},
		"over /":                      {"mounts.nri.io", "[{source: /srv/data, destination: /, options: [bind]}]", errdefs.IsPermissionDenied, []string{"could hide"}},
		"over ContainerDir":           {"mounts.nri.io", "[{source: /srv/data, destination: /var/run/jackfield/net, options: [bind]}]", errdefs.IsPermissionDenied, []string{"overlaps"}},
		"shared with the host":        {"mounts.nri.io", "[{source: /srv/data, destination: /x, options: [bind, rshared]}]", errdefs.IsInvalidArgument, []string{`"rshared"`}},
		"suid":                        {"mounts.nri.io", "[{source: /srv/data, destination: /x, options: [bind, suid]}]", errdefs.IsInvalidArgument, []string{`"suid"`}},
		"file system of a disk":       {"mounts.nri.io", "[{source: /dev/null, destination: /x, type: ext4}]", errdefs.IsInvalidArgument, []string{"must be a bind mount"}},
		"CDI not granted":             {"cdi-devices.nri.io", "[vendor.com/net=b]", errdefs.IsPermissionDenied, []string{"vendor.com/net=b"}},
		"unknown key":                 {"devices.nri.io", "[{path: /dev/null, type: c, major: 1, minor: 3, x: 1}]", errdefs.IsInvalidArgument, []string{`unknown key "x"`}},
	} {
		t.Run(name, func(t *testing.T) { h.wantRefusal(requestWithAnnotation(tc.key, tc.value), tc.is, tc.words...) })
	}
}

// Without compat.deviceInjector the annotations are ignored.
func TestDeviceInjectorAnnotationsAreOffByDefault(t *testing.T) {
	h := newInjectorHost(t, strings.Replace(injectorYAML, "deviceInjector: true", "deviceInjector: false", 1))
	r := requestWithAnnotation("devices.nri.io", "[{path: /dev/null, type: c, major: 1, minor: 3}]")
	if !h.e.HasNoRequests(r) {
		t.Error("the annotation counts as a request")
	}
	if p, err := h.e.Resolve(context.Background(), r); p != nil || err != nil {
		t.Errorf("got %+v, %v", p, err)
	}
}
