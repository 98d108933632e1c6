// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// installRoot is a directory into which install.sh installs (DESTDIR).
type installRoot struct {
	*testing.T
	dir string // DESTDIR
	env []string
}

// bin is the directory of the programs, which are built once.
var bin string

var buildPrograms = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-o", bin+"/", "./cmd/...")
	build.Dir, build.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	var err error
	if bin, err = os.MkdirTemp("", "jackfield-bin"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(bin)
	os.Exit(code)
}

// newInstallRoot builds the programs and returns a directory to install into.
func newInstallRoot(t *testing.T, env ...string) *installRoot {
	t.Helper()
	p := &installRoot{T: t, dir: filepath.Join(t.TempDir(), "root")}
	if err := buildPrograms(); err != nil {
		t.Fatal(err)
	}
	p.env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DESTDIR=" + p.dir, "BIN=" + bin}, env...)
	return p
}

// run runs install.sh, as `make install` and the other targets do.
func (p *installRoot) run(what string) string {
	p.Helper()
	cmd := exec.Command(filepath.Join(top, "deploy/install/install.sh"), what)
	cmd.Env = p.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.Fatalf("install.sh %s: %v\n%s", what, err, out)
	}
	return string(out)
}

// files returns the modes of all installed files by path.
func (p *installRoot) files() map[string]fs.FileMode {
	p.Helper()
	out := map[string]fs.FileMode{}
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			out[strings.TrimPrefix(path, p.dir)] = info.Mode()
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		p.Fatal(err)
	}
	return out
}

func (p *installRoot) read(path string) string {
	p.Helper()
	data, err := os.ReadFile(filepath.Join(p.dir, path))
	if err != nil {
		p.Fatal(err)
	}
	return string(data)
}

func (p *installRoot) write(path, text string) {
	p.Helper()
	path = filepath.Join(p.dir, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.Fatal(err)
	}
}

func (p *installRoot) isBuilt(name string) bool {
	_, err := os.Stat(filepath.Join(bin, name))
	return err == nil
}

func TestInstallAndUninstall(t *testing.T) {
	p := newInstallRoot(t, "PREFIX=/usr")
	p.run("install")
	want := map[string]fs.FileMode{
		"/etc/jackfield/config.yaml":                    0o644,
		"/usr/bin/jackfield":                            0o755,
		"/usr/bin/jackfield-nri":                        0o755,
		"/usr/lib/systemd/system/jackfield-nri.service": 0o644,
		"/usr/share/doc/jackfield/LICENSE":              0o644,
		"/usr/share/doc/jackfield/config.yaml":          0o644,
	}
	if p.isBuilt("jackfield-hook") {
		maps.Copy(want, map[string]fs.FileMode{
			"/usr/bin/jackfield-hook":                               0o755,
			"/etc/containers/containers.conf.d/50-jackfield.conf":   0o644,
			"/usr/share/doc/jackfield/containers.conf":              0o644,
			"/usr/share/doc/jackfield/crio.conf":                    0o644,
			"/usr/share/jackfield/crio-hooks.d/50-jackfield.json":   0o644,
			"/usr/share/jackfield/podman-hooks.d/50-jackfield.json": 0o644,
		})
	}
	if p.isBuilt("kubectl-jackfield") {
		want["/usr/bin/kubectl-jackfield"] = 0o755
	}
	if p.isBuilt("jackfield-run") {
		want["/usr/bin/jackfield-run"] = 0o755
	}
	if p.isBuilt("jackfield-cni") {
		want["/opt/cni/bin/jackfield-cni"] = 0o755
	}
	if p.isBuilt("jackfield-netavark") {
		want["/usr/libexec/netavark/jackfield-netavark"] = 0o755
	}
	got := p.files()
	for path, mode := range want {
		if got[path] != mode {
			t.Errorf("%s: mode %v, want %v", path, got[path], mode)
		}
	}
	for path := range got {
		generated := strings.HasPrefix(path, "/usr/share/man/") || strings.Contains(path, "/completions/") || strings.Contains(path, "/site-functions/") || strings.Contains(path, "vendor_completions")
		if _, ok := want[path]; !ok && !generated {
			t.Errorf("%s is installed and not expected", path)
		}
	}
	for path := range got {
		if text := p.read(path); !strings.HasPrefix(path, "/usr/bin") && !strings.HasPrefix(path, "/usr/libexec") && !strings.HasPrefix(path, "/opt") && strings.Contains(text, "/usr/local") && !strings.HasPrefix(path, "/usr/share/man") {
			t.Errorf("%s names /usr/local:\n%s", path, text)
		}
	}
	if unit := p.read("/usr/lib/systemd/system/jackfield-nri.service"); !strings.Contains(unit, "\nExecStart=/usr/bin/jackfield-nri --config /etc/jackfield/config.yaml\n") {
		t.Errorf("the unit is\n%s", unit)
	}
	// A second installation changes nothing.
	p.run("install")
	if again := p.files(); !maps.Equal(again, got) {
		t.Errorf("after the second installation there are %v", slices.Sorted(maps.Keys(again)))
	}
	p.run("uninstall")
	if left := p.files(); len(left) > 0 {
		t.Errorf("left behind: %v", slices.Sorted(maps.Keys(left)))
	}
}

func TestInstallKeepsConfiguration(t *testing.T) {
	p := newInstallRoot(t)
	mine := "policy: {mode: audit, rules: []}\n"
	p.write("/etc/jackfield/config.yaml", mine)
	p.write("/etc/nri/conf.d/50-jackfield.conf", mine)
	p.write("/etc/containers/containers.conf", "[engine]\nhooks_dir = [\"/srv/hooks\"]\n")
	p.write("/etc/crio/crio.conf.d/10-mine.conf", "[crio.runtime]\n  hooks_dir = [\"/srv/hooks\"]\n")
	out := p.run("install") + p.run("nri-plugin") + p.run("crio-hook")
	if !p.isBuilt("jackfield-hook") {
		out += `/etc/containers/containers.conf.d/50-jackfield.conf is not installed: it would replace hooks_dir of /etc/containers/containers.conf; add "/usr/local/share/jackfield/podman-hooks.d" there`
	}
	for _, want := range []string{
		"/etc/jackfield/config.yaml exists and is kept",
		"/etc/nri/conf.d/50-jackfield.conf exists and is kept",
		`/etc/containers/containers.conf.d/50-jackfield.conf is not installed: it would replace hooks_dir of /etc/containers/containers.conf; add "/usr/local/share/jackfield/podman-hooks.d" there`,
		`/etc/crio/crio.conf.d/50-jackfield-hooks.conf is not installed: it would replace hooks_dir of /etc/crio/crio.conf.d/10-mine.conf`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
	if got := p.read("/etc/jackfield/config.yaml") + p.read("/etc/nri/conf.d/50-jackfield.conf"); got != mine+mine {
		t.Errorf("the configuration is\n%s", got)
	}
	if mode := p.files()["/opt/nri/plugins/50-jackfield"]; mode != 0o755 {
		t.Errorf("the plugin has mode %v", mode)
	}
	if out := p.run("uninstall"); !strings.Contains(out, "/etc/jackfield/config.yaml is kept: it was edited") {
		t.Errorf("uninstall prints\n%s", out)
	}
	want := []string{"/etc/containers/containers.conf", "/etc/crio/crio.conf.d/10-mine.conf", "/etc/jackfield/config.yaml", "/etc/nri/conf.d/50-jackfield.conf"}
	if left := slices.Sorted(maps.Keys(p.files())); !slices.Equal(left, want) {
		t.Errorf("after uninstalling there are %q, want %q", left, want)
	}
}

// A list of hooks directories in a file that the runtime reads keeps the drop-in out: CRI-O reads every file of its directory,
// Podman those named *.conf.
func TestInstallKeepsListsOfHooks(t *testing.T) {
	p := newInstallRoot(t)
	p.write("/etc/crio/crio.conf.d/00-default", "[crio.runtime]\nhooks_dir = [\n  \"/srv/hooks\",\n]\n")
	p.write("/etc/containers/containers.conf.d/10-mine.conf~", "[engine]\nhooks_dir = [\"/srv/hooks\"]\n")
	if out := p.run("crio-hook"); !strings.Contains(out, `it would replace hooks_dir of /etc/crio/crio.conf.d/00-default; add "/usr/local/share/jackfield/crio-hooks.d" there`) {
		t.Errorf("install.sh crio-hook prints\n%s", out)
	}
	if out := p.run("install"); !strings.Contains(out, "\n  /etc/containers/containers.conf.d/50-jackfield.conf\n") {
		t.Errorf("install.sh install prints\n%s", out)
	}
}

// Everyone can read what is installed, whatever files root's shell hides from others: a rootless Podman that cannot read the
// hooks' directory runs no container.
func TestInstallationIsReadableByAll(t *testing.T) {
	p := newInstallRoot(t)
	cmd := exec.Command("sh", "-c", "umask 077; exec "+filepath.Join(top, "deploy/install/install.sh")+" install")
	cmd.Env = p.env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("install.sh install: %v\n%s", err, out)
	}
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && (info.Mode()&0o044 != 0o044 || d.IsDir() && info.Mode()&0o011 != 0o011) {
			t.Errorf("%s has mode %v", strings.TrimPrefix(path, p.dir), info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// install replaces a running program.
func TestInstallReplacesRunningProgram(t *testing.T) {
	p := newInstallRoot(t)
	p.run("install")
	running := exec.Command(filepath.Join(p.dir, "usr/local/bin/jackfield"), "validate", "-")
	stdin, err := running.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	p.run("install")
	stdin.Close()
	_ = running.Wait() // an empty file is invalid
}

func TestInstallRejectsInvalidPaths(t *testing.T) {
	for _, prefix := range []string{"usr", "/usr/", "/a b", "/a\"b", "/a#b", "/a//b"} {
		cmd := exec.Command(filepath.Join(top, "deploy/install/install.sh"), "uninstall")
		cmd.Env = []string{"PATH=/usr/bin:/bin", "DESTDIR=" + t.TempDir(), "PREFIX=" + prefix}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "install: ") {
			t.Errorf("%q: %v, %s", prefix, err, out)
		}
	}
}

// `make install` passes the paths to install.sh.
func TestMakeInstallPassesPaths(t *testing.T) {
	p := newInstallRoot(t)
	cmd := exec.Command("make", "-s", "install", "GO=none", "DESTDIR="+p.dir, "PREFIX=/opt/jackfield", "UNITDIR=/units", "BIN="+bin)
	cmd.Dir = top
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	for _, path := range []string{"/opt/jackfield/bin/jackfield-nri", "/units/jackfield-nri.service"} {
		if _, ok := p.files()[path]; !ok {
			t.Errorf("no %s", path)
		}
	}
}

// systemd accepts the unit.
func TestSystemdUnitIsValid(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("no systemd-analyze, which CI requires")
		}
		t.Skip("skipped: no systemd-analyze to check units with")
	}
	p := newInstallRoot(t, "PREFIX="+t.TempDir())
	p.dir = ""
	p.env[1] = "DESTDIR="
	conf := t.TempDir()
	p.env = append(p.env, "SYSCONFDIR="+conf, "CNIBINDIR="+conf+"/cni", "UNITDIR="+conf+"/units")
	p.run("install")
	// The manual pages are not installed on this machine; the test looks for them in the tree below.
	out, err := exec.Command(analyze, "verify", "--man=no", conf+"/units/jackfield-nri.service").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// No setting may create a mount namespace, because the runtime would not see the plugin's mounts.
	unit := string(read(t, "deploy/systemd/jackfield-nri.service"))
	for line := range strings.Lines(unit) {
		for _, key := range []string{"ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths",
			"ProtectKernel", "ProtectControlGroups", "ProtectProc", "ProtectHostname", "BindPaths", "RootDirectory", "DynamicUser", "TemporaryFileSystem"} {
			if strings.HasPrefix(line, key) {
				t.Errorf("the unit has %s", line)
			}
		}
	}
	for _, want := range []string{"StartLimitIntervalSec=0", "Type=notify", "Restart=always"} {
		if !strings.Contains(unit, "\n"+want+"\n") {
			t.Errorf("the unit does not have %s", want)
		}
	}
	pages := regexp.MustCompile(`man:([a-z.-]+)\((\d)\)`).FindAllStringSubmatch(unit, -1)
	if len(pages) == 0 {
		t.Error("the unit names no manual page")
	}
	for _, page := range pages {
		if _, err := os.Stat(filepath.Join(top, "docs/man", page[1]+"."+page[2])); err != nil {
			t.Error(err)
		}
	}
}
