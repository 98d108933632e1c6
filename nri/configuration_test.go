// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/dircheck"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

const (
	granting = "policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {cdi: [\"vendor.com/net=*\"]}}]}\n"
	refusing = "policy: {rules: []}\n"
	broken   = "policy: {rulez: []}\n"
)

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

type reloadHost struct {
	t   *testing.T
	dir string // of the configuration
	p   *Plugin
	log *logBuffer
}

// newReloadHost creates a plugin that reads etc/jackfield/config.yaml below a host root. link
// makes the file a symlink through ..data, as a mounted ConfigMap is.
func newReloadHost(t *testing.T, content string, link bool) *reloadHost {
	t.Helper()
	return newReloadHostIn(t, t.TempDir(), content, link)
}

func newReloadHostIn(t *testing.T, root, content string, link bool) *reloadHost {
	t.Helper()
	h := &reloadHost{t: t, dir: filepath.Join(root, "etc/jackfield"), log: &logBuffer{}}
	for _, d := range []string{h.dir, filepath.Join(root, "etc/cdi"), filepath.Join(root, "run")} {
		testkit.Must(t, os.MkdirAll(d, 0o755))
	}
	testkit.Must(t, os.WriteFile(filepath.Join(root, "etc/cdi/v.json"), []byte(
		`{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"env":["A=1"]}}]}`), 0o644))
	if link {
		h.swapConfigMap("..1", content)
		testkit.Must(t, os.Symlink("..data/config.yaml", h.file()))
	} else if content != "" {
		h.replaceConfigFile(content)
	}
	host, err := hostfs.New(root)
	testkit.Must(t, err)
	cfg := config.Default()
	if content != "" {
		cfg, err = config.Load(host, config.DefaultPath, config.Options{})
		testkit.Must(t, err)
	}
	log := logrus.New()
	log.SetOutput(h.log)
	h.p, err = New(Options{Host: host, Config: cfg, ConfigHost: host, ConfigFile: config.DefaultPath}, log)
	testkit.Must(t, err)
	t.Cleanup(func() {
		testkit.Must(t, h.p.Close())
		if t.Failed() {
			t.Log(h.log.String())
		}
	})
	// The tests are about answers and not about time: no request times out.
	h.p.calls.timeout.Store(int64(time.Hour))
	return h
}

func (h *reloadHost) file() string { return filepath.Join(h.dir, "config.yaml") }

func (h *reloadHost) replaceConfigFile(content string) {
	h.t.Helper()
	testkit.Must(h.t, os.WriteFile(h.file()+".new", []byte(content), 0o644))
	testkit.Must(h.t, os.Rename(h.file()+".new", h.file()))
}

// swapConfigMap replaces the content like the kubelet after a change of a ConfigMap.
func (h *reloadHost) swapConfigMap(version, content string) {
	h.t.Helper()
	testkit.Must(h.t, os.Mkdir(filepath.Join(h.dir, version), 0o755))
	testkit.Must(h.t, os.WriteFile(filepath.Join(h.dir, version, "config.yaml"), []byte(content), 0o644))
	testkit.Must(h.t, os.Symlink(version, filepath.Join(h.dir, "..data_tmp")))
	testkit.Must(h.t, os.Rename(filepath.Join(h.dir, "..data_tmp"), filepath.Join(h.dir, "..data")))
}

func (h *reloadHost) waitForStatus(what string, done func(ConfigStatus) bool) ConfigStatus {
	h.t.Helper()
	var s ConfigStatus
	if !testkit.Until(func() bool { s = h.p.ConfigStatus(); return done(s) }) {
		h.t.Fatalf("%s: %+v", what, s)
	}
	return s
}

// create creates a container with the device that granting grants.
func (h *reloadHost) create() error {
	pod := &api.PodSandbox{Id: "sb", Namespace: "ns", Name: "p",
		Annotations: map[string]string{"devices.jackfield.dev": "vendor.com/net=a"}}
	adjust, _, err := h.p.CreateContainer(context.Background(), pod, &api.Container{Id: "c", Name: "c"})
	if err == nil && len(adjust.GetEnv()) != 1 {
		return fmt.Errorf("adjustment %v: %w", adjust, errdefs.ErrUnknown)
	}
	return err
}

func (h *reloadHost) wantDenial() {
	h.t.Helper()
	if err := h.create(); !errdefs.IsPermissionDenied(err) {
		h.t.Errorf("got %v, want a denial", err)
	}
}

func (h *reloadHost) wantGrant() {
	h.t.Helper()
	testkit.Must(h.t, h.create())
}

func hasGeneration(n uint64) func(ConfigStatus) bool {
	return func(s ConfigStatus) bool { return s.Generation == n && s.LastError == nil }
}

// A plugin that cannot use its configuration returns why.
func TestFaultyConfigIsError(t *testing.T) {
	for name, text := range map[string]string{
		"a rule":              `policy: {rules: [{name: r, for: {namespaces: ["*"]}, allow: {sockets: [relative]}}]}`,
		"the state directory": "stateDir: /srv/state",
	} {
		host, err := hostfs.New(t.TempDir())
		testkit.Must(t, err)
		testkit.Must(t, os.MkdirAll(host.Path("/srv"), 0o755))
		testkit.Must(t, os.WriteFile(host.Path("/srv/state"), nil, 0o644))
		cfg, err := config.Parse([]byte(text), "/etc/jackfield/config.yaml")
		testkit.Must(t, err)
		log := logrus.New()
		log.SetOutput(&logBuffer{})
		// A remaining goroutine would fail a moment later.
		for range 20 {
			if p, err := New(Options{Host: host, Config: cfg}, log); err == nil {
				testkit.Must(t, p.Close())
				t.Fatalf("%s: no error", name)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestReplacedConfigurationIsReloaded(t *testing.T) {
	for name, change := range map[string]func(*reloadHost, string){
		"renamed into place": (*reloadHost).replaceConfigFile,
		"written in place": func(h *reloadHost, content string) {
			testkit.Must(h.t, os.WriteFile(h.file(), []byte(content), 0o644))
		},
		"ConfigMap": func(h *reloadHost, content string) { h.swapConfigMap("..2", content) },
		"directory replaced": func(h *reloadHost, content string) {
			testkit.Must(h.t, os.Rename(h.dir, h.dir+".old"))
			testkit.Must(h.t, os.Mkdir(h.dir, 0o755))
			h.replaceConfigFile(content)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newReloadHost(t, refusing, name == "ConfigMap")
			h.wantDenial()
			change(h, granting)
			s := h.waitForStatus("the change", func(s ConfigStatus) bool {
				if name == "written in place" {
					// The watch reads the file once when it starts, and may find a part of it.
					return s.Generation >= 2 && s.LastError == nil && h.create() == nil
				}
				return hasGeneration(2)(s)
			})
			h.wantGrant()
			if s.File != config.DefaultPath || s.Since.IsZero() {
				t.Errorf("status %+v", s)
			}
		})
	}
}

func TestReloadOfFileThatAppears(t *testing.T) {
	t.Parallel()
	h := newReloadHost(t, "", false)
	h.wantDenial()
	h.replaceConfigFile(granting)
	h.waitForStatus("the new file", hasGeneration(2))
	h.wantGrant()
}

// A faulty file is reported, and the configuration in force stays.
func TestRejectedReloadKeepsConfigInForce(t *testing.T) {
	t.Parallel()
	h := newReloadHost(t, granting, false)
	for i, bad := range []func(){
		func() { h.replaceConfigFile(broken) },
		func() { testkit.Must(t, os.Remove(h.file())) },
		func() { h.replaceConfigFile("stateDir: /run/elsewhere\n" + granting) },
		func() {
			h.replaceConfigFile(refusing)
			testkit.Must(t, os.Chmod(h.file(), 0o666))
		},
		func() { // in one step, so that the plugin never finds the file missing
			testkit.Must(t, os.Mkdir(h.file()+".dir", 0o755))
			testkit.Must(t, unix.Renameat2(unix.AT_FDCWD, h.file()+".dir", unix.AT_FDCWD, h.file(), unix.RENAME_EXCHANGE))
		},
	} {
		if i == 3 {
			// Change the mode before the rename, so that the plugin never reads a valid file.
			testkit.Must(t, os.WriteFile(h.file()+".new", []byte(refusing), 0o666))
			testkit.Must(t, os.Chmod(h.file()+".new", 0o666))
			bad = func() { testkit.Must(t, os.Rename(h.file()+".new", h.file())) }
		}
		bad()
		h.waitForStatus(fmt.Sprintf("fault %d", i), func(s ConfigStatus) bool {
			return s.Failures == uint64(i+1) && s.LastError != nil
		})
		if s := h.p.ConfigStatus(); s.Generation != 1 {
			t.Fatalf("generation %d", s.Generation)
		}
		h.wantGrant()
	}
	if n := strings.Count(h.log.String(), "keeping the current one"); n != 5 {
		t.Errorf("%d log lines, want 5", n)
	}
	// After the correction, the configuration is unchanged and no fault is reported.
	testkit.Must(t, os.Remove(h.file()))
	h.replaceConfigFile(granting)
	h.waitForStatus("the old content", hasGeneration(1))
	h.replaceConfigFile(refusing)
	h.waitForStatus("another content", hasGeneration(2))
	h.wantDenial()
}

// A file that belongs neither to root nor to the plugin's user is rejected, at the start and later.
func TestConfigOfAnotherUserIsRejected(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("only root can give a file away")
		}
		t.Skip("only root can give a file away")
	}
	h := newReloadHost(t, granting, false)
	testkit.Must(t, os.WriteFile(h.file()+".new", []byte(refusing), 0o644))
	testkit.Must(t, os.Chown(h.file()+".new", 12345, -1))
	testkit.Must(t, os.Rename(h.file()+".new", h.file()))
	s := h.waitForStatus("the refusal", func(s ConfigStatus) bool { return s.Failures > 0 })
	if s.Generation != 1 || !errdefs.IsPermissionDenied(s.LastError) ||
		!strings.Contains(s.LastError.Error(), "owned by uid 12345") {
		t.Errorf("status %+v", s)
	}
	h.wantGrant()
	if err := loadConfig(&Options{Host: h.p.opts.Host}, "", h.p.log.Logger); !errdefs.IsPermissionDenied(err) {
		t.Errorf("at the start: %v", err)
	}
}

// A request during a change is decided by the old or the new configuration.
func TestReloadUnderLoad(t *testing.T) {
	began := time.Now()
	h := newReloadHost(t, granting, false)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	errs := make(chan error, 4)
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := h.create(); err != nil && !errdefs.IsPermissionDenied(err) {
					errs <- err
					return
				}
			}
		})
	}
	for i := range 6 {
		h.replaceConfigFile([]string{refusing, granting}[i%2])
		h.waitForStatus("a change", hasGeneration(uint64(i+2)))
	}
	cancel()
	wg.Wait()
	select {
	case err := <-errs:
		t.Error(err)
	default:
	}
	h.p.config.mu.Lock()
	defer h.p.config.mu.Unlock()
	if n := len(h.p.config.retired); n != 6 && time.Since(began) < retireAfter {
		t.Errorf("%d configurations are not closed", n)
	}
}

// Many changes in a row keep only a few configurations open.
func TestManyReloadsKeepFewConfigurationsOpen(t *testing.T) {
	h := newReloadHost(t, granting, false)
	h.p.calls.timeout.Store(int64(time.Millisecond))
	const changes = 3 * maxRetired
	for i := range changes {
		h.replaceConfigFile([]string{refusing, granting}[i%2])
		h.waitForStatus("a change", hasGeneration(uint64(i+2)))
	}
	h.waitForStatus("the oldest to be closed", func(ConfigStatus) bool {
		h.p.config.mu.Lock()
		defer h.p.config.mu.Unlock()
		return len(h.p.config.retired) <= maxRetired
	})
}

// A runtime hands its configuration over at each registration. The first one decides where the
// state directory is; later, containers live there.
func TestRuntimeConfigKeepsStateDirectory(t *testing.T) {
	host := newCopyHost(t)
	log := logrus.New()
	log.SetOutput(&logBuffer{})
	p, err := New(Options{Host: host.host, Inherited: true}, log)
	testkit.Must(t, err)
	defer func() { testkit.Must(t, p.Close()) }()
	hand := func(yaml string) error {
		_, err := p.Configure(context.Background(), yaml, "containerd", "v2.2.0")
		return err
	}
	testkit.Must(t, hand("stateDir: /run/first\n"+refusing))
	store := p.state.store.Load()
	_, err = p.Synchronize(context.Background(), nil, nil)
	testkit.Must(t, err)
	for _, yaml := range []string{
		"stateDir: /run/second\n",
		"stateDir: /run/first\nsockets: {staging: directory}\n",
		"stateDir: /run/first\nsockets: {directorySize: 1Mi}\n",
	} {
		if err := hand(yaml + refusing); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%q, after containers may exist: %v", yaml, err)
		}
	}
	testkit.Must(t, hand("stateDir: /run/first\n"+granting))
	if p.state.store.Load() != store || store == nil {
		t.Error("the store of running containers was replaced")
	}
}

// A rejected configuration does not change which directories are checked.
func TestRejectedReloadKeepsCheckedDirectories(t *testing.T) {
	h := newReloadHost(t, granting, false)
	before := h.p.config.dirs.Directories()
	h.replaceConfigFile("deviceInfo: {cniDir: /run/other}\n" +
		"policy: {rules: [{name: r, for: {namespaces: [ns]}, allow: {cdi: [nonsense]}}]}\n")
	h.waitForStatus("the fault", func(s ConfigStatus) bool { return s.Failures > 0 })
	paths := func(dirs []dircheck.Directory) (out []string) {
		for _, d := range dirs {
			out = append(out, d.Path)
		}
		return out
	}
	if after := h.p.config.dirs.Directories(); !slices.Equal(paths(after), paths(before)) {
		t.Errorf("checked are %q, were %q", paths(after), paths(before))
	}
}

// Reloads in one moment keep no more earlier configurations open than the bound.
func TestRetiredConfigurationsAreBoundedAtOnce(t *testing.T) {
	h := newReloadHost(t, granting, false)
	for range 2 * maxRetired {
		testkit.Must(t, h.p.config.apply(h.p.config.core.Load().cfg))
		h.p.config.mu.Lock()
		n := len(h.p.config.retired)
		h.p.config.mu.Unlock()
		if n > maxRetired {
			t.Fatalf("%d earlier configurations are open, want at most %d", n, maxRetired)
		}
	}
}

// A refusal that comes when the time is up is the reason, and not an unresponsive file system.
func TestRefusalInLastMomentIsTheReason(t *testing.T) {
	h := newReloadHost(t, granting, false)
	for want, isTimedOut := range map[error]bool{errdefs.ErrPermissionDenied: false, context.Canceled: true} {
		ctx, cancel := context.WithCancel(t.Context())
		err := h.p.calls.runOrUndo(ctx, telemetry.CreateContainer, nil, func(context.Context) error {
			cancel()
			return want
		}, func() {})
		if isTimeout(err) != isTimedOut || !isTimedOut && !errors.Is(err, want) {
			t.Errorf("%v is reported as %v", want, err)
		}
	}
}

// A configuration that was closed early, because of many changes, is garbage.
func TestClosedConfigurationsAreNotHeld(t *testing.T) {
	h := newReloadHost(t, granting, false)
	var all []weak.Pointer[core]
	for range 4 * maxRetired {
		all = append(all, weak.Make(h.p.config.core.Load()))
		testkit.Must(t, h.p.config.apply(h.p.opts.Config))
	}
	held := maxRetired + 1
	// After retireAfter, all of them are closed and garbage.
	for end := time.Now().Add(retireAfter / 2); held > maxRetired && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		runtime.GC()
		held = len(slices.DeleteFunc(slices.Clone(all), func(p weak.Pointer[core]) bool { return p.Value() == nil }))
	}
	if held > maxRetired {
		t.Errorf("%d earlier configurations are held, want at most %d", held, maxRetired)
	}
}
