// SPDX-License-Identifier: Apache-2.0

// Package packaged builds Jackfield's Debian package, and runs the tutorial of Podman with it as it is printed.
package packaged

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/parts"
)

const version = "0.1.0"

// packageEnv carries the path of the package into the jail.
const packageEnv = "JACKFIELD_DEBIAN_PACKAGE"

// Build builds the package, or takes the cache's package of the same checkout. Call it outside of the jail, where modules
// can be downloaded.
func Build(ctx context.Context) error {
	root, err := parts.ModuleRoot(".")
	if err != nil {
		return err
	}
	cache, err := parts.CacheDir()
	if err != nil {
		return err
	}
	key := sha256.New()
	// What the package consists of, as committed, and changes that are not committed.
	sources := []string{"cmd", "deploy", "docs/man", "go.mod", "hooks.d", "internal", "nri", "pkg", "test/release"}
	for _, args := range [][]string{{"ls-tree", "HEAD", "--"}, {"diff", "HEAD", "--"}} {
		git := exec.CommandContext(ctx, "git", append(args, sources...)...)
		git.Dir, git.Stdout = root, key
		if err := git.Run(); err != nil {
			return fmt.Errorf("build package: git %s: %w", args[0], err)
		}
	}
	parent := filepath.Join(cache, "package")
	dir := filepath.Join(parent, fmt.Sprintf("%x", key.Sum(nil)[:6]))
	logf := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "package: "+format+"\n", args...) }
	if err := parts.Once(ctx, dir, logf, func(tmp string) error {
		old, err := filepath.Glob(filepath.Join(parent, "*"))
		for _, name := range old {
			err = errors.Join(err, os.RemoveAll(name))
		}
		if err != nil {
			return err
		}
		logf("building Jackfield's Debian package")
		cmd := exec.CommandContext(ctx, "go", "run", ".", "-version", version, "-uncommitted", "-archs", runtime.GOARCH, "-packages", "-o", filepath.Join(tmp, "release"))
		cmd.Dir = filepath.Join(root, "test", "release")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build package: %w\n%s", err, out)
		}
		return nil
	}); err != nil {
		return err
	}
	return os.Setenv(packageEnv, filepath.Join(dir, "release", "jackfield_"+version+"_"+runtime.GOARCH+".deb"))
}

// tutorial is a run of the page.
type tutorial struct {
	t     *testing.T
	dir   string // with the unpacked package and other programs of /usr
	files []string
}

const page = "../../../docs/tutorials/podman.md"

// The page's commands that build, install and remove the package.
const (
	makeLine    = "make release VERSION=" + version
	installLine = "sudo apt install ./bin/release/" + version + "/jackfield_" + version + "_amd64.deb"
	purgeLine   = "sudo apt purge jackfield"
)

// RunPodmanTutorial runs the page in the jail with the package's files and no others of Jackfield. podman is the script
// that becomes /usr/bin/podman.
func RunPodmanTutorial(t *testing.T, podman string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	u := &tutorial{t: t, dir: t.TempDir()}
	for name, script := range map[string]string{"podman": podman, "sudo": "exec \"$@\"\n"} {
		u.write(filepath.Join(u.dir, "tools/bin", name), "#!/bin/sh\n"+script, 0o755)
	}
	blocks := regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	ran := 0
	for i, b := range blocks {
		switch b[1] {
		case "yaml":
			name, _, ok := strings.Cut(strings.TrimPrefix(b[2], "# "), "\n")
			if !ok || !filepath.IsAbs(name) {
				t.Fatalf("a file has no path in its first line:\n%s", b[2])
			}
			u.write(name, b[2], 0o644)
		case "sh":
			want := ""
			if i+1 < len(blocks) && blocks[i+1][1] == "text" {
				want = blocks[i+1][2]
			}
			u.runBlock(b[2], want)
			ran++
		}
	}
	if ran < 7 {
		t.Errorf("the page has only %d blocks of commands", ran)
	}
	for _, name := range []string{"/usr/bin/jackfield", "/etc/jackfield", "/etc/cdi/example.yaml", "/etc/containers/containers.conf.d/50-jackfield.conf"} {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("the page leaves %s", name)
		}
	}
}

// PodmanRun returns a script for /usr/bin/podman. It runs the words of `podman run` with the options of the page, and a
// root file system in place of the page's image, which no test can download.
func PodmanRun(rootfs string, words ...string) string {
	return fmt.Sprintf(`shift # run
for word; do
	shift
	if [ "$word" = docker.io/library/alpine ]; then set -- "$@" --rootfs %s; else set -- "$@" "$word"; fi
done
exec %s "$@"
`, rootfs, strings.Join(words, " "))
}

func (u *tutorial) write(name, text string, mode os.FileMode) {
	u.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), mode), os.Chmod(name, mode)); err != nil {
		u.t.Fatal(err)
	}
}

// varying are the parts of the output that differ at each run.
var varying = regexp.MustCompile(`[0-9a-f]{64}|time="[^"]*"|[A-Z][a-z]{2} +\d+ +\d\d:\d\d`)

// runBlock runs the commands of a block. Their output must be the one on the page. A refusal is a failure.
func (u *tutorial) runBlock(block, want string) {
	u.t.Helper()
	var commands strings.Builder
	for line := range strings.Lines(block) {
		switch strings.TrimSpace(line) {
		case makeLine:
		case installLine:
			u.install()
		case purgeLine: // the last of its block
			defer u.purge()
		default:
			commands.WriteString(line)
		}
	}
	out, err := exec.Command("sh", "-ec", commands.String()).CombinedOutput()
	normal := func(s string) string { return varying.ReplaceAllString(s, "...") }
	if got := normal(string(out)); got != normal(want) {
		u.t.Errorf("%sfound\n%swant\n%s", block, got, normal(want))
	}
	if refused := strings.Contains(want, "Error: "); (err != nil) != refused {
		u.t.Errorf("%s%v", block, err)
	}
}

// install unpacks the package, mounts its /usr over the jail's, and copies its configuration to /etc.
func (u *tutorial) install() {
	u.t.Helper()
	root := filepath.Join(u.dir, "package")
	if out, err := exec.Command("dpkg-deb", "-x", os.Getenv(packageEnv), root).CombinedOutput(); err != nil {
		u.t.Fatalf("unpack the package: %v: %s", err, out)
	}
	if err := unix.Mount("overlay", "/usr", "overlay", unix.MS_RDONLY, "lowerdir="+filepath.Join(root, "usr")+":"+filepath.Join(u.dir, "tools")+":/usr"); err != nil {
		u.t.Fatalf("mount the package over /usr: %v", err)
	}
	u.t.Cleanup(func() { u.purge() })
	config := "/etc/jackfield/config.yaml"
	data, err := os.ReadFile(root + config)
	if err != nil {
		u.t.Fatal(err)
	}
	u.write(config, string(data), 0o644)
	u.files = []string{config, filepath.Dir(config)}
}

// purge undoes install.
func (u *tutorial) purge() {
	if u.files == nil {
		return
	}
	if err := unix.Unmount("/usr", unix.MNT_DETACH); err != nil {
		u.t.Errorf("unmount the package: %v", err)
	}
	for _, name := range u.files {
		if err := os.Remove(name); err != nil {
			u.t.Error(err)
		}
	}
	u.files = nil
}
