// SPDX-License-Identifier: Apache-2.0

package nritest_test

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/adapter/cli"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/nri"
	"github.com/jackfield/jackfield/test/hangfs"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// unresponsive is a directory that never answers, and what works all the same.
type unresponsive struct {
	dir     string
	use     string // in the configuration
	later   bool   // it hangs once the plugin runs
	device  bool   // a CDI device is injected
	socket  bool   // a socket is injected
	nothing bool   // a container without a request is created
}

// configured is the directory as the configuration has it.
func (h *unresponsive) configured() string {
	switch h.use {
	case "state", "audit file":
		return h.dir
	}
	return "/var" + h.dir
}

func withUse(use string) string { return " (" + use + ")" }

// With a directory on a file system that never answers, the plugin registers all the same. A
// container that does not need the directory gets what it was granted; a container that does
// gets an error before the runtime's deadline. The runtime drops a plugin that is late, so that
// being connected at the end shows that it never was.
func TestUnresponsiveDirectoryRefusesOnlyItsContainers(t *testing.T) {
	device := map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}
	for name, tc := range map[string]unresponsive{
		"CDI directory":                       {dir: "/run/cdi", use: "CDI", socket: true, nothing: true},
		"CDI directory, later":                {dir: "/run/cdi", use: "CDI", later: true, socket: true, nothing: true},
		"device-info of networks":             {dir: "/run/k8s.cni.cncf.io/devinfo/cni", use: "device-info of networks", nothing: true},
		"device-info of networks, later":      {dir: "/run/k8s.cni.cncf.io/devinfo/cni", use: "device-info of networks", later: true, nothing: true},
		"device-info of device plugins":       {dir: "/run/k8s.cni.cncf.io/devinfo/dp", use: "device-info of device plugins", device: true, socket: true, nothing: true},
		"socket root":                         {dir: "/run/vsw", use: "socket root", device: true, nothing: true},
		"socket root, later":                  {dir: "/run/vsw", use: "socket root", later: true, device: true, nothing: true},
		"below a socket root":                 {dir: "/run/vsw/p1", device: true, nothing: true},
		"state directory, later":              {dir: "/run/jackfield", use: "state", later: true, device: true, nothing: true},
		"state directory's containers, later": {dir: "/run/jackfield/containers", use: "state", later: true, device: true, nothing: true},
		"audit file's directory":              {dir: "/run/audit", use: "audit file", device: true, socket: true, nothing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var began time.Time
			var release func()
			yaml := strings.ReplaceAll(observedYAML, "/run/audit.log", "/run/audit/log")
			n := preparedNode(t, yaml, nritest.Options{RequestTimeout: 6 * time.Second}, func(n *node) {
				defer func() { began = time.Now() }()
				n.write("/etc/cdi/vendor.json", cdiSpec)
				n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
				check(t, os.MkdirAll(n.path(tc.dir), 0o755))
				if !tc.later {
					release = hangfs.Mount(t, n.path(tc.dir))
				}
			})
			// Five seconds are the runtime's own deadline, for a plugin that it starts itself;
			// six times that is for a machine that is busy with the other tests.
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("registered after %v", took)
			}
			if tc.later {
				n.metrics(`jackfield_nri_connected 1`)
				eventually(t, "health", func() bool { _, body := n.get("/healthz"); return strings.Contains(body, "directories: ok") })
				release = hangfs.Mount(t, n.path(tc.dir))
			}
			defer release()
			try := func(what string, annotations map[string]string, info bool, want bool) {
				t.Helper()
				pod := nritest.NewPod("dpdk-1", "p", annotations)
				if info {
					n.devinfo(pod, "vhost-net", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`)
				}
				check(t, n.runtime.RunPodSandbox(context.Background(), pod))
				c, err := n.create(pod, nil)
				for end := time.Now().Add(testkit.Hangs); want && timedOut(err) && time.Now().Before(end); {
					c, err = n.create(pod, nil)
				}
				if (err == nil) != want {
					t.Errorf("%s: %v, want created: %v", what, err, want)
				}
				if err != nil && !slices.ContainsFunc([]string{"given up before the runtime's deadline", tc.dir + withUse(tc.use) + " has been unresponsive since "}, func(s string) bool { return strings.Contains(err.Error(), s) }) {
					t.Errorf("%s: %v", what, err)
				}
				if c != nil {
					check(t, n.runtime.RemoveContainer(context.Background(), pod, c.Container))
				}
				check(t, n.runtime.RemovePodSandbox(context.Background(), pod))
			}
			try("nothing asked", nil, false, tc.nothing)
			try("a CDI device", device, false, tc.device)
			if tc.dir != "/run/k8s.cni.cncf.io/devinfo/cni" { // the test itself would hang there
				try("a socket", nil, true, tc.socket)
			}
			// Scrapes are answered, and the plugin has been connected all the time.
			n.metrics(`jackfield_nri_connected 1`, `jackfield_nri_connections_total 1`)
			if strings.Contains(tc.dir, "cdi") {
				n.metrics(`jackfield_cdi_up 0`)
			}
			for _, path := range []string{"/healthz", "/readyz"} {
				eventually(t, path, func() bool {
					code, body := n.get(path)
					if code != http.StatusOK {
						t.Errorf("%s: %d %s", path, code, body)
					}
					return tc.use == "" || strings.Contains(body, tc.dir+withUse(tc.use)+" has been unresponsive since ")
				})
			}
			if tc.use != "" {
				n.metrics(`jackfield_directory_up{directory="` + tc.configured() + `",use="` + tc.use + `"} 0`)
				if !strings.Contains(n.log.String(), "a directory is unresponsive") {
					t.Error("the log does not report the directory")
				}
			}

			// When it answers again, all is well without a restart.
			release()
			eventually(t, "a device after the directory is back", func() bool {
				pod := n.pod("dpdk-1", device)
				_, err := n.create(pod, nil)
				return err == nil
			})
			eventually(t, "health when the directory is back", func() bool { _, body := n.get("/healthz"); return strings.Contains(body, "directories: ok") })
			eventually(t, "a socket after the directory is back", func() bool {
				pod := nritest.NewPod("dpdk-1", "p", nil)
				n.devinfo(pod, "vhost-net", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`)
				check(t, n.runtime.RunPodSandbox(context.Background(), pod))
				c, err := n.create(pod, nil)
				return err == nil && slices.Contains(c.Spec.Process.Env, "JACKFIELD_NET1_SOCKET=/var/run/jackfield/net/net1/vhost.sock")
			})
		})
	}
}

// timedOut reports whether a container was refused because of its deadline. On a busy machine
// that happens to containers that do not need the directory, too. The kubelet retries.
func timedOut(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "given up before the runtime's deadline") || strings.Contains(err.Error(), " has been unresponsive since "))
}

// While the state directory is unresponsive the plugin does not start, and the error names the directory. It starts
// when the directory responds, removes the state of containers that ended before and meanwhile, and keeps the rest.
func TestUnresponsiveStateDirectoryFailsStart(t *testing.T) {
	n := newNode(t, observedYAML, nritest.Options{RequestTimeout: 6 * time.Second})
	n.listen(vswitch.VhostUser, "/run/vsw/p1/vhost.sock")
	begin := func() (*api.PodSandbox, *nritest.Created) {
		pod := nritest.NewPod("dpdk-1", "p", nil)
		n.devinfo(pod, "vhost-net", "net1", `{"type":"vhost-user","version":"1.1.0","vhost-user":{"mode":"client","path":"/var/run/vsw/p1/vhost.sock"}}`)
		check(t, n.runtime.RunPodSandbox(t.Context(), pod))
		return pod, n.mustCreate(pod)
	}
	before, ended := begin()
	during, removed := begin()
	_, lives := begin()
	n.stop()
	n.runtime.Forget(ended.Container.Id)
	n.runtime.Forget(before.Id)

	cfg, err := config.Parse([]byte(observedYAML), "/etc/jackfield/config.yaml")
	check(t, err)
	log := logrus.New()
	log.SetOutput(n.log)
	start := func() (*nri.Plugin, error) {
		return nri.New(nri.Options{Host: n.host(), Config: cfg, ConfigGiven: true, Socket: n.runtime.SocketPath()}, log)
	}
	for _, dir := range []string{"/run/jackfield/containers", "/run/jackfield"} {
		release := hangfs.Mount(t, n.path(dir))
		_, err := start()
		if want := `open state directory "/run/jackfield": it must respond within 3s; check the file system mounted there`; !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("while %s is unresponsive New returns %v, want %q", dir, err, want)
		}
		release()
	}
	check(t, n.runtime.RemoveContainer(t.Context(), during, removed.Container))
	check(t, n.runtime.RemovePodSandbox(t.Context(), during))

	var p *nri.Plugin
	eventually(t, "the start", func() bool { p, err = start(); return err == nil })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	defer func() {
		cancel()
		check(t, <-done)
		check(t, p.Close())
	}()
	n.wait()
	n.metrics(`jackfield_nri_connected 1`, `jackfield_staging_mode{mode="directory"} 1`)
	eventually(t, "the removal of ended containers", func() bool {
		entries, err := os.ReadDir(n.path("/run/jackfield/containers"))
		return err == nil && len(entries) == 1 && entries[0].Name() == lives.Container.Id
	})
	pod, c := begin()
	check(t, n.runtime.RemoveContainer(t.Context(), pod, c.Container))
	check(t, n.runtime.RemovePodSandbox(t.Context(), pod))
}

// The doctor ends and names the directory.
func TestDoctorNamesUnresponsiveDirectory(t *testing.T) {
	for dir, want := range map[string]string{
		"/run/cdi":                          "directory /var/run/cdi (CDI) is unresponsive",
		"/run/vsw":                          "directory /var/run/vsw (socket root) is unresponsive",
		"/run/jackfield":                    "directory /run/jackfield (state) is unresponsive",
		"/run/k8s.cni.cncf.io/devinfo/cni":  "directory /var/run/k8s.cni.cncf.io/devinfo/cni (device-info of networks) is unresponsive",
		"/var/lib/cni/multus":               "directory /var/lib/cni/multus (Multus' cache) is unresponsive",
		"/var/lib/kubelet/pod-resources":    "directory /var/lib/kubelet/pod-resources (the kubelet's socket) is unresponsive",
		"/var/lib/kubelet/pods-api":         "directory /var/lib/kubelet/pods-api (the kubelet's Pods API) is unresponsive",
		"/run/k8s.cni.cncf.io/devinfo/dp/.": "directory /var/run/k8s.cni.cncf.io/devinfo/dp (device-info of device plugins) is unresponsive",
	} {
		t.Run(filepath.Base(filepath.Clean(dir)), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for _, d := range []string{dir, "run", "var", "etc/jackfield"} {
				check(t, os.MkdirAll(filepath.Join(root, d), 0o755))
			}
			if _, err := os.Lstat(filepath.Join(root, "var/run")); err != nil {
				check(t, os.Symlink("../run", filepath.Join(root, "var/run")))
			}
			check(t, os.WriteFile(filepath.Join(root, "etc/jackfield/config.yaml"), []byte(policyYAML), 0o644))
			hangfs.Mount(t, filepath.Join(root, dir))
			var stdout, stderr bytes.Buffer
			began := time.Now()
			code := cli.Run(t.Context(), []string{"doctor", "--root", root}, cli.Env{Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
			if code != 1 || !strings.Contains(stdout.String(), want) || !strings.Contains(stdout.String(), "kubelet") {
				t.Errorf("exit status %d after %v:\n%s%s", code, time.Since(began), &stdout, &stderr)
			}
		})
	}
}

// The doctor names an unresponsive file of the runtime's configuration or the NRI socket, and
// checks the rest.
func TestDoctorNamesUnresponsiveRuntimeConfig(t *testing.T) {
	for name, c := range map[string]struct{ dir, file, text, want string }{
		"an import":       {"mnt", "etc/containerd/config.toml", "version = 3\nimports = [\"/etc/none/*.toml\", \"/mnt/nri.toml\"]\n", "runtime        not checked: /mnt/nri.toml did not respond within "},
		"imports":         {"mnt", "etc/containerd/config.toml", "version = 3\nimports = [\"/mnt/conf.d/*.toml\"]\n", "runtime        not checked: /mnt/conf.d did not respond within "},
		"the file":        {"etc/containerd", "", "", "runtime        not checked: /etc/containerd/config.toml did not respond within "},
		"CRI-O":           {"etc/crio", "", "", "runtime        not checked: /etc/crio/crio.conf did not respond within "},
		"the socket":      {"run/nri", "", "", "nri            not checked: /var/run/nri/nri.sock did not respond within "},
		"Jackfield's own": {"etc/jackfield", "", "", "configuration  not checked: /etc/jackfield/config.yaml did not respond within "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			for _, d := range []string{c.dir, filepath.Dir(c.file), "run/cdi", "var"} {
				check(t, os.MkdirAll(filepath.Join(root, d), 0o755))
			}
			check(t, os.Symlink("../run", filepath.Join(root, "var/run")))
			if c.file != "" {
				check(t, os.WriteFile(filepath.Join(root, c.file), []byte(c.text), 0o644))
			}
			hangfs.Mount(t, filepath.Join(root, c.dir))
			var stdout, stderr bytes.Buffer
			began := time.Now()
			code := cli.Run(t.Context(), []string{"doctor", "--root", root}, cli.Env{Stdout: &stdout, Stderr: &stderr, Getenv: func(string) string { return "" }})
			out := stdout.String()
			if code != 1 || !strings.Contains(out, "ERROR    "+c.want) || !strings.Contains(out, " kubelet ") || !strings.Contains(out, " nri ") {
				t.Errorf("exit status %d after %v; want %q:\n%s%s", code, time.Since(began), c.want, out, &stderr)
			}
		})
	}
}

// Faults in hooks.d directories are counted until they are corrected.
func TestHooksInErrorAreCounted(t *testing.T) {
	n := preparedNode(t, observedYAML+"hooks: {dirs: [/etc/hooks.d]}\n", nritest.Options{}, func(n *node) {
		n.write("/etc/hooks.d/good.json", `{"version":"1.0.0","hook":{"path":"/bin/hook"},"when":{"always":true},"stages":["prestart"]}`)
		n.write("/etc/hooks.d/bad.json", `{"version":"1.0.0","hook":{"path":"relative"},"when":{},"stages":["neverstart"]}`)
		n.write("/bin/hook", "#!/bin/sh\n")
		check(t, os.Chmod(n.path("/bin/hook"), 0o755))
	})
	n.metrics(`jackfield_hooks 1`, `jackfield_hooks_files_in_error 1`)
	check(t, os.Remove(n.path("/etc/hooks.d/bad.json")))
	n.metrics(`jackfield_hooks 1`, `jackfield_hooks_files_in_error 0`)
}
