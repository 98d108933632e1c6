// SPDX-License-Identifier: Apache-2.0

package main

import (
	"debug/elf"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/parts"
)

// requireRoot skips the test for other users: package managers change their root directory.
func requireRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI requires")
		}
		t.Skip("skipped: package managers install as root only")
	}
}

// unpack unpacks an architecture's archive and returns its directory.
func unpack(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	command(t, dir, plainEnv, "tar", "-xzf", filepath.Join(released(t), archiveName(arch)+".tar.gz"))
	return filepath.Join(dir, archiveName(arch))
}

// checkPrograms runs the installed programs: they know the release, and accept the installed configuration.
func checkPrograms(t *testing.T, root string) {
	t.Helper()
	commit, date, _ := strings.Cut(strings.TrimSpace(command(t, "../..", append(plainEnv, "TZ=UTC"), "git", "log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%H %cd")), " ")
	build := decode[map[string]string](t, command(t, root, plainEnv, filepath.Join(root, "usr/bin/jackfield"), "version", "-o", "json"))
	if build["version"] != version || build["commit"] != commit || build["date"] != date {
		t.Errorf("the build is %v, want %s of commit %s, %s", build, version, commit, date)
	}
	for _, program := range []string{"usr/bin/jackfield-nri", "usr/bin/jackfield-hook", "usr/bin/jackfield-run", "opt/cni/bin/jackfield-cni", "usr/libexec/netavark/jackfield-netavark"} {
		if out := command(t, root, plainEnv, filepath.Join(root, program), "--version"); !strings.Contains(out, filepath.Base(program)+" "+version+" (") {
			t.Errorf("%s prints %q", program, out)
		}
	}
	command(t, root, plainEnv, filepath.Join(root, "usr/bin/jackfield"), "validate", filepath.Join(root, "etc/jackfield/config.yaml"))
}

// checkFiles checks the other files of an installation.
func checkFiles(t *testing.T, root string) {
	t.Helper()
	if unit := read(t, root, "usr/lib/systemd/system/jackfield-nri.service"); !strings.Contains(unit, "\nExecStart=/usr/bin/jackfield-nri --config /etc/jackfield/config.yaml\n") {
		t.Errorf("the unit is\n%s", unit)
	}
	if hook := read(t, root, "usr/share/jackfield/podman-hooks.d/50-jackfield.json"); !strings.Contains(hook, `"/usr/bin/jackfield-hook"`) {
		t.Errorf("the hook is\n%s", hook)
	}
	if licenses := read(t, root, "usr/share/doc/jackfield/THIRD_PARTY_LICENSES"); !strings.Contains(licenses, "\nGo "+strings.TrimPrefix(runtime.Version(), "go")+", LICENSE\n") || !strings.Contains(licenses, "\ngithub.com/containerd/nri v") {
		t.Errorf("the licences of Go or of NRI's library are missing: %d bytes", len(licenses))
	}
	for _, name := range []string{"man/man1/jackfield.1", "man/man5/jackfield.yaml.5", "man/man8/jackfield-nri.8", "doc/jackfield/LICENSE",
		"bash-completion/completions/jackfield", "zsh/site-functions/_jackfield", "fish/vendor_completions.d/jackfield.fish"} {
		if text := read(t, root, "usr/share", name); len(text) < 100 {
			t.Errorf("%s is\n%s", name, text)
		}
	}
}

func TestArchiveInstalls(t *testing.T) {
	dir, root := unpack(t, runtime.GOARCH), t.TempDir()
	command(t, dir, append(plainEnv, "DESTDIR="+root, "PREFIX=/usr"), "deploy/install/install.sh", "install")
	checkPrograms(t, root)
	checkFiles(t, root)
	read(t, root, "etc/containers/containers.conf.d/50-jackfield.conf")
	command(t, dir, append(plainEnv, "DESTDIR="+root, "PREFIX=/usr"), "deploy/install/install.sh", "uninstall")
	if left := files(t, root); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// files returns the files below a directory, sorted.
func files(t *testing.T, root string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The programs of each architecture are static and of that architecture.
func TestProgramsAreStatic(t *testing.T) {
	var sources []string
	for _, name := range files(t, "../../cmd") {
		if strings.HasSuffix(name, "/main.go") {
			sources = append(sources, filepath.Dir(name))
		}
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		dir := filepath.Join(unpack(t, arch), "bin")
		programs := files(t, dir)
		if !slices.Equal(programs, sources) {
			t.Errorf("%s: the programs are %q", arch, programs)
		}
		for _, program := range programs {
			f, err := elf.Open(dir + program)
			if err != nil {
				t.Fatal(err)
			}
			if f.Machine != machine || slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
				t.Errorf("%s: %s is for %s, or needs a dynamic linker", arch, program, f.Machine)
			}
			f.Close()
		}
	}
}

// newRoot returns a root file system with a shell, and with a systemctl that records how it is called.
func newRoot(t *testing.T) string {
	t.Helper()
	store, err := parts.Open()
	if err != nil {
		t.Fatal(err)
	}
	busybox, err := store.Get(t.Context(), parts.Busybox())
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, dir := range []string{"bin", "run/systemd/system", "dev", "var/lib/dpkg/info", "var/lib/dpkg/updates"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"bin/sh": read(t, busybox.Path("bin/busybox")), "bin/systemctl": "#!/bin/sh\necho \"$*\" >>/calls\n", "var/lib/dpkg/status": "", "calls": "",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// calls returns how systemctl was called since the last time.
func calls(t *testing.T, root string) string {
	t.Helper()
	text := read(t, root, "calls")
	if err := os.Truncate(filepath.Join(root, "calls"), 0); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}

// packageManager installs, upgrades and removes Jackfield's package.
type packageManager struct {
	root             string
	install, upgrade func()
	remove, verify   func()
}

// checkPackage checks what dpkg and rpm have in common.
func checkPackage(t *testing.T, m packageManager) {
	t.Helper()
	m.install()
	checkPrograms(t, m.root)
	checkFiles(t, m.root)
	m.verify()
	if got := calls(t, m.root); got != "daemon-reload; try-restart jackfield-nri.service" {
		t.Errorf("the installation called systemctl: %s", got)
	}
	if _, err := os.Stat(filepath.Join(m.root, "etc/containers")); err == nil {
		t.Error("the package enables the OCI hook")
	}
	config := filepath.Join(m.root, "etc/jackfield/config.yaml")
	const mine = "policy: {mode: audit, rules: []}\n"
	if err := os.WriteFile(config, []byte(mine), 0o644); err != nil {
		t.Fatal(err)
	}
	m.upgrade()
	if got := read(t, config); got != mine {
		t.Errorf("after an upgrade the configuration is\n%s", got)
	}
	if got := calls(t, m.root); strings.Contains(got, "disable") || !strings.Contains(got, "try-restart jackfield-nri.service") {
		t.Errorf("the upgrade called systemctl: %s", got)
	}
	m.remove()
	if got := calls(t, m.root); !strings.Contains(got, "disable --now jackfield-nri.service; ") || !strings.HasSuffix(got, "daemon-reload") {
		t.Errorf("the removal called systemctl: %s", got)
	}
	var left []string
	for _, name := range files(t, m.root) {
		if strings.Contains(name, "jackfield") && !strings.HasPrefix(name, "/var/lib/") {
			left = append(left, name)
		}
	}
	if len(left) != 1 || !strings.HasPrefix(left[0], "/etc/jackfield/config.yaml") { // rpm renames it
		t.Errorf("after the removal there are %q", left)
	}
}

func TestDebianPackageInstalls(t *testing.T) {
	requireRoot(t)
	root := newRoot(t)
	file := filepath.Join(released(t), "jackfield_"+version+"_"+runtime.GOARCH+".deb")
	dpkg := func(args ...string) string {
		t.Helper()
		return command(t, root, append(plainEnv, "HOME="+root), "dpkg", append([]string{"--root=" + root, "--log=" + root + "/log", "--path-include=*", "--force-confold", "--force-unsafe-io"}, args...)...)
	}
	checkPackage(t, packageManager{
		root:    root,
		install: func() { dpkg("--install", file) }, upgrade: func() { dpkg("--install", file) },
		verify: func() {
			if out := dpkg("--verify", "jackfield"); out != "" {
				t.Errorf("dpkg --verify: %s", out)
			}
		},
		remove: func() { dpkg("--remove", "jackfield") },
	})
	dpkg("--purge", "jackfield")
	if _, err := os.Stat(filepath.Join(root, "etc/jackfield")); err == nil {
		t.Error("--purge leaves the configuration behind")
	}
	if got := command(t, root, plainEnv, "dpkg-deb", "--field", strings.Replace(file, runtime.GOARCH, "arm64", 1), "Architecture", "Version"); got != "Architecture: arm64\nVersion: "+version+"-1\n" {
		t.Errorf("the package is of\n%s", got)
	}
}

func TestRPMPackageInstalls(t *testing.T) {
	requireRoot(t)
	store, err := parts.Open()
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := store.Ensure(t.Context(), parts.RPM()...)
	if err != nil {
		t.Fatal(err)
	}
	var libraries []string
	for _, u := range unpacked {
		dirs, err := filepath.Glob(u.Path("usr/lib/*-linux-gnu"))
		if err != nil {
			t.Fatal(err)
		}
		libraries = append(libraries, dirs...)
	}
	root := newRoot(t)
	env := append(plainEnv, "HOME="+root, "LD_LIBRARY_PATH="+strings.Join(libraries, ":"), "RPM_CONFIGDIR="+unpacked[1].Path("usr/lib/rpm"))
	rpm := func(args ...string) string {
		t.Helper()
		return command(t, root, env, unpacked[0].Path("usr/bin/rpm"), append([]string{"--root", root, "--dbpath", "/var/lib/rpm", "--force-debian"}, args...)...)
	}
	file := filepath.Join(released(t), "jackfield-"+version+"."+rpmArchs[runtime.GOARCH]+".rpm")
	checkPackage(t, packageManager{
		root:    root,
		install: func() { rpm("--install", file) }, upgrade: func() { rpm("--upgrade", "--replacepkgs", file) },
		verify: func() { rpm("--verify", "jackfield") },
		remove: func() { rpm("--erase", "jackfield") },
	})
	const format = "%{NAME} %{VERSION} %{RELEASE} %{ARCH} %{LICENSE} %{BUILDHOST}"
	other := filepath.Join(released(t), "jackfield-"+version+".aarch64.rpm")
	if got := rpm("--query", "--package", "--queryformat", format, other); !strings.HasSuffix(got, "jackfield "+version+" 1 aarch64 Apache-2.0 localhost") {
		t.Errorf("the package is of %s", got)
	}
}
