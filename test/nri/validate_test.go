// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/nri"
	nritest "github.com/jackfield/jackfield/test/nri"
)

const validatingYAML = policyYAML + `    - name: data
      for:   {namespaces: ["*"]}
      allow: {mounts: [{source: "/srv/data/**", readOnly: true}, {type: squashfs, destination: "/images/**"}]}
validate: {devices: true, mounts: true, except: [20-trusted]}
`

// withValidation is a runtime with NRI 0.10, the first that has it.
var withValidation = nritest.Options{RuntimeVersion: "2.2.0"}

// injector is another plugin, which gives every container the same thing.
type injector struct {
	nritest.Noop
	adjust *api.ContainerAdjustment
}

func (i *injector) CreateContainer(context.Context, *api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return i.adjust, nil, nil
}

// other starts an injector beside Jackfield, before or after it.
func (n *node) other(index, name string, adjust *api.ContainerAdjustment) {
	n.t.Helper()
	stop, err := nritest.StartPlugin(n.t.Context(), n.runtime.SocketPath(), index, name, &injector{adjust: adjust})
	check(n.t, err)
	n.t.Cleanup(stop)
	check(n.t, n.runtime.WaitPlugin(n.t.Context(), index+"-"+name))
}

// mknod makes /dev/null's twin on the node, and what the kernel says of its number.
func (n *node) mknod(path string) {
	n.t.Helper()
	check(n.t, os.MkdirAll(n.path("/dev/vfio"), 0o755))
	err := unix.Mknod(n.path(path), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3)))
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		skip(n.t, "make device node %s: %v", path, err)
	}
	check(n.t, err)
	check(n.t, os.MkdirAll(n.path("/sys/dev/char/1:3"), 0o755))
	check(n.t, os.WriteFile(n.path("/sys/dev/char/1:3/uevent"), []byte("MAJOR=1\nMINOR=3\nDEVNAME="+strings.TrimPrefix(path, "/dev/")+"\n"), 0o644))
}

func injectedDevice(path string, major, minor int64) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.AddDevice(&api.LinuxDevice{Path: path, Type: "c", Major: major, Minor: minor})
	return a
}

func injectedMount(source, destination, kind string, options ...string) *api.ContainerAdjustment {
	a := &api.ContainerAdjustment{}
	a.AddMount(&api.Mount{Source: source, Destination: destination, Type: kind, Options: options})
	return a
}

// What another plugin injects must be granted by the policy, under its name on the host and not the
// name in the container.
func TestPolicyAppliesToOtherPlugins(t *testing.T) {
	for _, tc := range []struct {
		name   string
		index  string // of the other plugin; Jackfield's is 50
		adjust *api.ContainerAdjustment
		want   []string // in the refusal; none for a grant
	}{
		{"granted device", "10-other", injectedDevice("/dev/vfio/7", 1, 3), nil},
		{"granted device by another name", "10-other", injectedDevice("/dev/mine", 1, 3), nil},
		{"device after Jackfield", "90-other", injectedDevice("/dev/vfio/7", 1, 9), []string{`"90-other"`, "1:9", "no node of this host"}},
		{"raw number under a granted name", "10-other", injectedDevice("/dev/vfio/7", 8, 0), []string{"8:0", "/sys/dev/char/8:0"}},
		{"mount", "10-other", injectedMount("/etc", "/host", "bind", "rbind", "ro"), []string{`deny mount "/etc" at "/host"`, `"10-other"`}},
		{"granted mount", "10-other", injectedMount("/srv/data/a", "/data", "bind", "rbind", "ro"), nil},
		{"granted mount, writable", "10-other", injectedMount("/srv/data/a", "/data", "bind", "rbind", "rw"), []string{`deny mount "/srv/data/a"`}},
		{"granted mount, writable by default", "10-other", injectedMount("/srv/data/a", "/data", "bind", "rbind"), []string{`deny mount "/srv/data/a"`}},
		{"symlink out of a granted directory", "10-other", injectedMount("/srv/data/link", "/data", "bind", "rbind", "ro"), []string{`deny mount "/srv/secret"`}},
		{"up", "10-other", injectedMount("/srv/data/../secret", "/data", "bind", "ro"), []string{"only an absolute path"}},
		{"disk", "10-other", injectedMount("/dev/sda", "/data", "ext4", "ro"), []string{`deny mount of type "ext4" at "/data"`}},
		{"granted type", "10-other", injectedMount("/x", "/images/a", "squashfs", "ro"), nil},
		{"granted type elsewhere", "10-other", injectedMount("/x", "/etc", "squashfs", "ro"), []string{`deny mount of type "squashfs" at "/etc"`}},
		{"tmpfs", "10-other", injectedMount("tmpfs", "/cache", "tmpfs"), nil},
		{"trusted plugin", "20-trusted", injectedMount("/etc", "/host", "bind", "rbind"), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t, validatingYAML, withValidation)
			if len(tc.adjust.GetLinux().GetDevices()) > 0 {
				n.mknod("/dev/vfio/7")
			}
			for _, d := range []string{"/srv/data/a", "/srv/secret", "/etc"} {
				check(t, os.MkdirAll(n.path(d), 0o755))
			}
			check(t, os.Symlink("../secret", n.path("/srv/data/link")))
			index, name, _ := strings.Cut(tc.index, "-")
			n.other(index, name, tc.adjust)
			pod := nritest.NewPod("dpdk-a", "fwd-0", nil)
			check(t, n.runtime.RunPodSandbox(t.Context(), pod))
			_, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
			if tc.want == nil {
				check(t, err)
				return
			}
			if err == nil {
				t.Fatal("the container was created")
			}
			for _, w := range append(tc.want, "dpdk-a/fwd-0/app") {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not name %s: %v", w, err)
				}
			}
		})
	}
}

// A read-only mount that includes writable submounts counts as writable.
func TestReadOnlyMountWithWritableSubmounts(t *testing.T) {
	for options, refused := range map[string]bool{"rbind,ro": true, "bind,ro": false, "rbind,ro,rro": false} {
		n := newNode(t, validatingYAML, withValidation)
		check(t, os.MkdirAll(n.path("/srv/data/a/below"), 0o755))
		if err := unix.Mount("tmpfs", n.path("/srv/data/a/below"), "tmpfs", 0, "size=4096"); err != nil {
			skip(t, "mount a tmpfs: %v", err)
		}
		t.Cleanup(func() { check(t, unix.Unmount(n.path("/srv/data/a/below"), unix.MNT_DETACH)) })
		n.other("10", "other", injectedMount("/srv/data/a", "/data", "bind", strings.Split(options, ",")...))
		_, err := n.create(n.pod("dpdk-a", nil), nil)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), `deny mount "/srv/data/a"`) {
			t.Errorf("%s: %v, want it refused: %v", options, err, refused)
		}
	}
}

// What Jackfield injects is checked once, when it is injected: a grant of a CDI device includes the
// edits of the device.
func TestOwnInjectionsAreNotValidated(t *testing.T) {
	n := newNode(t, validatingYAML, withValidation)
	check(t, os.WriteFile(n.path("/etc/cdi/v.json"), []byte(`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a",
 "containerEdits":{"deviceNodes":[{"path":"/dev/ungranted","type":"c","major":1,"minor":5}],"mounts":[{"hostPath":"/opt/v","containerPath":"/opt/v"}]}}]}`), 0o644))
	pod := nritest.NewPod("dpdk-a", "fwd-0", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	check(t, n.runtime.RunPodSandbox(t.Context(), pod))
	created, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
	check(t, err)
	if len(created.Adjust.GetLinux().GetDevices()) != 1 || len(created.Adjust.GetMounts()) != 1 {
		t.Errorf("adjustment %v", created.Adjust)
	}
}

// A policy in audit mode denies nothing of other plugins, and logs what mode enforce would deny.
func TestValidationInAuditMode(t *testing.T) {
	n := newNode(t, strings.Replace(validatingYAML, "policy:\n", "policy:\n  mode: audit\n", 1), withValidation)
	check(t, os.MkdirAll(n.path("/etc"), 0o755))
	n.other("10", "other", injectedMount("/etc", "/host", "bind", "rbind"))
	pod := nritest.NewPod("default", "p", nil)
	check(t, n.runtime.RunPodSandbox(t.Context(), pod))
	_, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
	check(t, err)
	if !strings.Contains(n.log.String(), "mode enforce would deny this request") {
		t.Error("nothing is said")
	}
}

// On runtimes with the event and without failure policies, the plugin is a validator without
// configuration: such a runtime goes on without an unresponsive plugin, but not without a validator.
func TestValidatorReplacesFailurePolicy(t *testing.T) {
	for version, want := range map[string]bool{"1.7.24": false, "2.1.9": false, "2.2.0": true, "2.2.1": true} {
		host, err := hostfs.New(t.TempDir())
		check(t, err)
		cfg, err := config.Parse([]byte(policyYAML), "/etc/jackfield/config.yaml")
		check(t, err)
		p, err := nri.New(nri.Options{Host: host, Config: cfg, ConfigGiven: true}, logrus.New())
		check(t, err)
		mask, err := p.Configure(t.Context(), "", "containerd", version)
		check(t, err)
		if got := mask.IsSet(api.Event_VALIDATE_CONTAINER_ADJUSTMENT); got != want {
			t.Errorf("containerd %s: a validator: %t, want %t", version, got, want)
		}
		// It answers at once, to whatever others inject.
		check(t, p.ValidateContainerAdjustment(t.Context(), &api.ValidateContainerAdjustmentRequest{
			Adjust: injectedMount("/etc", "/host", "bind"), Owners: &api.OwningPlugins{}}))
		check(t, p.Close())
	}
}

// The plugin does not subscribe to the event on a runtime that is too old for it, because the
// registration would fail. The log says what that means.
func TestValidationNeedsRuntimeSupport(t *testing.T) {
	n := newNode(t, validatingYAML, nritest.Options{RuntimeVersion: "2.1.9"})
	check(t, os.MkdirAll(n.path("/etc"), 0o755))
	n.other("10", "other", injectedMount("/etc", "/host", "bind", "rbind"))
	pod := nritest.NewPod("default", "p", nil)
	check(t, n.runtime.RunPodSandbox(t.Context(), pod))
	_, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
	check(t, err)
	if !strings.Contains(n.log.String(), "this runtime does not validate adjustments") {
		t.Error("nothing is said")
	}
}

// Another plugin that registers under Jackfield's name is validated. What Jackfield itself injects is
// not.
func TestOtherPluginWithSameNameIsValidated(t *testing.T) {
	n := newNode(t, validatingYAML, withValidation)
	n.write("/etc/cdi/vendor.json", cdiSpec)
	check(t, os.MkdirAll(n.path("/srv/secret"), 0o755))
	pod := n.pod("dpdk-a", map[string]string{"devices.jackfield.dev": "vendor.com/net=a"})
	n.mustCreate(pod)
	stop, err := nritest.StartPlugin(t.Context(), n.runtime.SocketPath(), "50", "jackfield", &injector{adjust: injectedMount("/srv/secret", "/host", "bind", "rbind")})
	check(t, err)
	t.Cleanup(stop)
	eventually(t, "two plugins", func() bool { return n.runtime.Plugins() == 2 })
	_, err = n.create(pod, nil)
	if err == nil || !strings.Contains(err.Error(), `deny mount "/srv/secret"`) {
		t.Errorf("the other plugin's mount: %v", err)
	}
}

// A granted source grants no mount of another type: its options name other paths, or the kernel ignores the
// source. Types are compared exactly.
func TestGrantedSourceIsNoGrantOfAnotherType(t *testing.T) {
	n := newNode(t, validatingYAML, withValidation)
	check(t, os.MkdirAll(n.path("/srv/data/a"), 0o755))
	other := &injector{}
	n.runtime.Connect(t, "10", "other", other)
	pod := nritest.NewPod("dpdk-a", "fwd-0", nil)
	check(t, n.runtime.RunPodSandbox(t.Context(), pod))
	for _, tc := range []struct {
		fsType  string
		options []string
		granted bool
	}{
		{"", []string{"bind", "ro"}, true},
		{"none", []string{"rbind", "ro"}, true},
		{"bind", []string{"ro"}, true},
		{"overlay", []string{"ro", "lowerdir=/etc:/srv/data/a"}, false},
		{"overlay", []string{"rbind", "ro"}, false},
		{"tmpfs", []string{"rbind", "ro"}, false},
		{"tmpfs", nil, true},
		{"TMPFS", nil, false},
		{"Bind", []string{"ro"}, false},
		{"debugfs", []string{"ro"}, false}, {"tracefs", []string{"ro"}, false}, {"devtmpfs", []string{"ro"}, false}, {"cgroup2", []string{"ro"}, false},
		{"bpf", []string{"ro"}, false}, {"proc", []string{"ro"}, false}, {"sysfs", []string{"ro"}, false}, {"fuse", []string{"ro"}, false},
		{"fuse.sshfs", []string{"ro"}, false}, {"nfs", []string{"ro"}, false}, {"over\nlay", []string{"ro"}, false},
	} {
		other.adjust = injectedMount("/srv/data/a", "/data", tc.fsType, tc.options...)
		_, err := n.runtime.CreateContainer(t.Context(), pod, &api.Container{Name: "app"})
		if (err == nil) != tc.granted {
			t.Errorf("type %q with %q: %v, want granted: %v", tc.fsType, tc.options, err, tc.granted)
		}
		if !tc.granted && err != nil && !strings.Contains(err.Error(), "mount of type") {
			t.Errorf("type %q: the error does not name the type: %v", tc.fsType, err)
		}
	}
}
