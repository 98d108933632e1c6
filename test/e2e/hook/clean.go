// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// left is what containers may leave behind.
type left struct {
	mounts    []string
	processes []string // their command lines
	cgroups   []string
	files     []string // of what runtimes and the hook keep for containers
}

// look lists what there is now.
func (h *host) look() left {
	h.t.Helper()
	return left{mounts: h.mountPoints(), processes: h.processes(), cgroups: h.cgroups(), files: h.kept()}
}

// since is what is there now and was not then.
func (l left) since(then left) []string {
	var out []string
	for _, of := range []struct {
		what      string
		now, then []string
	}{{"mount", l.mounts, then.mounts}, {"process", l.processes, then.processes}, {"cgroup", l.cgroups, then.cgroups}, {"file", l.files, then.files}} {
		known := make(map[string]int)
		for _, s := range of.then {
			known[s]++
		}
		for _, s := range of.now {
			if known[s]--; known[s] < 0 {
				out = append(out, of.what+" "+s)
			}
		}
	}
	return out
}

// checkClean checks that nothing is left of the containers: no mount, no process, no
// cgroup, no file of a runtime's or of the hook's. What Podman does in the background
// has ten seconds.
func (h *host) checkClean() {
	h.t.Helper()
	var found []string
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if found = h.look().since(h.before); len(found) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, what := range found {
		h.t.Errorf("left behind: %s", what)
	}
	if h.t.Failed() {
		h.t.Logf("the hook's log:\n%s", h.log())
	}
}

func (h *host) mountPoints() []string {
	h.t.Helper()
	var points []string
	for line := range strings.Lines(h.readFile("/proc/self/mountinfo")) {
		// Podman binds its own storage once, for good.
		if f := strings.Fields(line); len(f) > 4 && f[4] != h.path("podman/root/vfs") {
			points = append(points, f[4])
		}
	}
	return points
}

func (h *host) readFile(name string) string {
	h.t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(data)
}

// processes are all of the jail.
func (h *host) processes() []string {
	h.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		// One that has ended since has none.
		if text, err := os.ReadFile(f); err == nil && len(text) > 0 {
			all = append(all, strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " ")))
		}
	}
	return all
}

// cgroups are those of the jail, in all hierarchies: of version 2, too, which is mounted
// for that where it is hidden.
func (h *host) cgroups() []string {
	h.t.Helper()
	mounts, err := jail.CgroupMounts()
	if err != nil {
		h.t.Fatal(err)
	}
	const unified = "/run/cgroup2"
	if err := os.MkdirAll(unified, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := unix.Mount("cgroup2", unified, "cgroup2", 0, ""); err == nil {
		defer func() {
			if err := unix.Unmount(unified, unix.MNT_DETACH); err != nil {
				h.t.Error(err)
			}
		}()
		mounts = append(mounts, unified)
	}
	var all []string
	for _, m := range mounts {
		top := filepath.Join(m, jail.CgroupParent())
		err := filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
			// Podman has one for all that watch over containers, for good.
			if err == nil && d.IsDir() && name != top && name != filepath.Join(top, "conmon") {
				all = append(all, name)
			}
			return nil // it is gone
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return all
}

// kept is what runtimes and the hook keep for containers.
func (h *host) kept() []string {
	h.t.Helper()
	dirs := []string{"/run/runc", "/run/crun", h.path("oci-state"), h.path("state/hook/containers"), h.path("state/hook/sandboxes"), h.path("state/claims")}
	var all []string
	for _, dir := range slices.Compact(dirs) {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			h.t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, filepath.Join(dir, e.Name()))
		}
	}
	return all
}
