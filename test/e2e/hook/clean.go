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

// resources is an inventory of what containers may leave behind.
type resources struct {
	mounts    []string
	processes []string // their command lines
	cgroups   []string
	files     []string // of runtimes and the hook, for containers
}

// listResources lists what exists now.
func (h *host) listResources() resources {
	h.t.Helper()
	return resources{mounts: h.mountPoints(), processes: h.processes(), cgroups: h.cgroups(), files: h.stateFiles()}
}

// addedSince returns what is in l and was not in before.
func (l resources) addedSince(before resources) []string {
	var out []string
	for _, kind := range []struct {
		what        string
		now, before []string
	}{{"mount", l.mounts, before.mounts}, {"process", l.processes, before.processes}, {"cgroup", l.cgroups, before.cgroups}, {"file", l.files, before.files}} {
		known := make(map[string]int)
		for _, s := range kind.before {
			known[s]++
		}
		for _, s := range kind.now {
			if known[s]--; known[s] < 0 {
				out = append(out, kind.what+" "+s)
			}
		}
	}
	return out
}

// checkClean checks that containers left no mount, process or cgroup, and no file of a runtime or of the
// hook. It waits for background work of Podman.
func (h *host) checkClean() {
	h.t.Helper()
	var found []string
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if found = h.listResources().addedSince(h.before); len(found) == 0 || time.Now().After(end) {
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
		// Podman binds its own storage once and permanently.
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

// processes returns the processes of the jail.
func (h *host) processes() []string {
	h.t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	var all []string
	for _, f := range files {
		// A process that has ended meanwhile has none.
		if text, err := os.ReadFile(f); err == nil && len(text) > 0 {
			all = append(all, strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " ")))
		}
	}
	return all
}

// cgroups returns the cgroups of the jail in all hierarchies. Where version 2 is hidden, it is mounted for
// this purpose.
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
			// Podman has a permanent one for all conmon processes.
			if err == nil && d.IsDir() && name != top && name != filepath.Join(top, "conmon") {
				all = append(all, name)
			}
			return nil // it was removed
		})
		if err != nil {
			h.t.Fatal(err)
		}
	}
	return all
}

// stateFiles returns the files that runtimes and the hook store for containers.
func (h *host) stateFiles() []string {
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
