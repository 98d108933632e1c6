// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// copyHost is a host on which the plugin is started several times.
type copyHost struct {
	t    *testing.T
	host hostfs.Root
	log  *logBuffer
}

func newCopyHost(t *testing.T) *copyHost {
	host, err := hostfs.New(t.TempDir())
	testkit.Must(t, err)
	for _, d := range []string{"/etc/jackfield", "/etc/cdi", "/run"} {
		testkit.Must(t, os.MkdirAll(host.Path(d), 0o755))
	}
	testkit.Must(t, os.WriteFile(host.Path("/etc/cdi/v.json"), []byte(
		`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`), 0o644))
	return &copyHost{t: t, host: host}
}

func (h *copyHost) file() string { return h.host.Path(config.DefaultPath) }
func (h *copyHost) copy() string { return h.host.Path(config.DefaultCopyPath) }

func (h *copyHost) write(content string) {
	h.t.Helper()
	testkit.Must(h.t, os.WriteFile(h.file()+".new", []byte(content), 0o644))
	testkit.Must(h.t, os.Rename(h.file()+".new", h.file()))
}

// start starts the plugin as the command does.
func (h *copyHost) start() (*reloadHost, error) {
	h.t.Helper()
	h.log = &logBuffer{}
	log := logrus.New()
	log.SetOutput(h.log)
	opts := Options{Host: h.host, ConfigCopy: config.DefaultCopyPath}
	if err := loadConfig(&opts, "", log); err != nil {
		return nil, err
	}
	p, err := New(opts, log)
	if err != nil {
		return nil, err
	}
	return &reloadHost{t: h.t, dir: filepath.Dir(h.file()), p: p, log: h.log}, nil
}

const faultyConfig = "sockets: {access: acls}\npolicy: {mode: enforced}\n"

// With a faulty file at the start the last good configuration is in force, until the file is
// corrected.
func TestFaultyConfigAtStartUsesLastGoodCopy(t *testing.T) {
	h := newCopyHost(t)
	for name, spoil := range map[string]func(){
		"faults": func() { h.write(faultyConfig) },
		"a rule": func() {
			h.write(`policy: {rules: [{name: r, for: {namespaces: ["*"]}, allow: {sockets: [relative]}}]}`)
		},
		"no YAML":             func() { h.write("\x00") },
		"others can write it": func() { h.write(refusing); testkit.Must(t, os.Chmod(h.file(), 0o666)) },
		"it is a directory":   func() { testkit.Must(t, os.Remove(h.file())); testkit.Must(t, os.Mkdir(h.file(), 0o755)) },
		"faults, started twice": func() {
			h.write(faultyConfig)
			r, err := h.start()
			testkit.Must(t, err)
			testkit.Must(t, r.p.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Must(t, os.RemoveAll(h.file()))
			h.write(granting)
			r, err := h.start()
			testkit.Must(t, err)
			testkit.Must(t, r.p.Close())
			if st, err := os.Stat(h.copy()); err != nil || st.Mode().Perm() != 0o600 {
				t.Fatalf("the copy: %v, %v", st, err)
			}
			spoil()
			r, err = h.start()
			testkit.Must(t, err)
			defer func() { testkit.Must(t, r.p.Close()) }()
			r.wantGrant()
			s := r.p.ConfigStatus()
			if s.LastError == nil || s.Generation != 1 || s.File != config.DefaultPath {
				t.Fatalf("status %+v", s)
			}
			told := map[string]string{"the log": h.log.String(), "the status": r.p.endpoints.nodeStatus().Config.Error}
			health := httptest.NewRecorder()
			r.p.endpoints.serveHealth(health, nil)
			told["/healthz"] = health.Body.String()
			want := []string{"the last good configuration", config.DefaultCopyPath}
			if name == "faults" {
				want = append(want, "acls", "enforced")
			}
			for where, text := range told {
				for _, w := range want {
					if !strings.Contains(text, w) {
						t.Errorf("%s does not name %q: %s", where, w, text)
					}
				}
			}
			testkit.Must(t, os.RemoveAll(h.file()))
			h.write(refusing)
			r.waitForStatus("the file that was put right", hasGeneration(2))
			r.wantDenial()
			r.waitForStatus("the copy of the file that was put right", func(ConfigStatus) bool {
				data, err := os.ReadFile(h.copy())
				return err == nil && strings.HasSuffix(string(data), refusing)
			})
		})
	}
}

// A faulty file is an error without a good copy of the same file.
func TestFaultyConfigWithoutCopyIsError(t *testing.T) {
	const header = "# jackfield-nri: the last good configuration of "
	const own = header + "\"/etc/jackfield/config.yaml\"\n"
	for name, prepare := range map[string]func(h *copyHost){
		"no copy":                 func(*copyHost) {},
		"a copy of another file":  func(h *copyHost) { h.writeCopy(header+"\"/etc/other.yaml\"\n"+granting, 0o600) },
		"a faulty copy":           func(h *copyHost) { h.writeCopy(own+faultyConfig, 0o600) },
		"a copy others can write": func(h *copyHost) { h.writeCopy(own+granting, 0o666) },
		"the file was missing at an earlier start": func(h *copyHost) {
			h.write(granting)
			r, err := h.start()
			testkit.Must(h.t, err)
			testkit.Must(h.t, r.p.Close())
			testkit.Must(h.t, os.Remove(h.file()))
			r, err = h.start()
			testkit.Must(h.t, err)
			r.wantDenial()
			testkit.Must(h.t, r.p.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCopyHost(t)
			prepare(h)
			h.write(faultyConfig)
			r, err := h.start()
			if err == nil {
				testkit.Must(t, r.p.Close())
				t.Fatal("no error at the start")
			}
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "acls") {
				t.Error(err)
			}
		})
	}
}

func (h *copyHost) writeCopy(content string, mode os.FileMode) {
	h.t.Helper()
	testkit.Must(h.t, os.MkdirAll(filepath.Dir(h.copy()), 0o755))
	testkit.Must(h.t, os.WriteFile(h.copy(), []byte(content), 0o600))
	testkit.Must(h.t, os.Chmod(h.copy(), mode))
}

// A plugin that the runtime starts creates nothing in a state directory before it has the
// configuration that the runtime hands over.
func TestNothingIsCreatedBeforeRuntimeConfig(t *testing.T) {
	for name, tc := range map[string]struct{ handed, want, not string }{
		"another state directory": {handed: "stateDir: /run/other", want: "/run/other", not: "/run/jackfield"},
		"none":                    {want: "/run/jackfield", not: "/run/other"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newCopyHost(t)
			log := logrus.New()
			log.SetOutput(&logBuffer{})
			p, err := New(Options{Host: h.host, Inherited: true, ConfigCopy: config.DefaultCopyPath}, log)
			testkit.Must(t, err)
			defer func() { testkit.Must(t, p.Close()) }()
			entries, err := os.ReadDir(h.host.Path("/run"))
			testkit.Must(t, err)
			if len(entries) > 0 {
				t.Errorf("created before the configuration: %v", entries)
			}
			_ = p.endpoints.nodeStatus()
			_, err = p.Configure(t.Context(), tc.handed, "containerd", "v2.1.0")
			testkit.Must(t, err)
			if _, err := os.Stat(h.host.Path(tc.want)); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(h.host.Path(tc.not)); err == nil {
				t.Errorf("%s was made", tc.not)
			}
		})
	}
	h := newCopyHost(t)
	log := logrus.New()
	log.SetOutput(&logBuffer{})
	p, err := New(Options{Host: h.host, Inherited: true}, log)
	testkit.Must(t, err)
	testkit.Must(t, p.Close()) // the plugin never had a configuration
}
