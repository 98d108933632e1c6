// SPDX-License-Identifier: Apache-2.0

package live

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// allowDevices allows devices in the device cgroup of a process: in version 1 by writing a line for
// each device, in version 2 by a BPF program.
func allowDevices(pid int, devices []edit.Device) error {
	var rules []rule
	for i := range devices {
		if r, ok := deviceRule(&devices[i]); ok && !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil
	}
	err := allowInCgroup(pid, rules)
	if errors.Is(err, os.ErrPermission) && rootless() {
		// Rootless runtimes cannot restrict devices. Access depends on the node's owner and mode.
		return nil
	}
	if err != nil {
		return fmt.Errorf("allow devices in the cgroup of process %d: %w", pid, err)
	}
	return nil
}

// rule allows one device.
type rule struct {
	typ          byte // b or c
	major, minor uint32
	access       string // of r, w and m
}

func (r rule) String() string {
	return fmt.Sprintf("%c %d:%d %s", r.typ, r.major, r.minor, r.access)
}

// deviceRule returns the rule of cgroup v1 for a device node. It returns false for a node that needs no rule: a
// pipe, or a device without access.
func deviceRule(d *edit.Device) (rule, bool) {
	r := rule{typ: 'c', major: uint32(d.Major), minor: uint32(d.Minor), access: cmp.Or(d.Access, "rwm")}
	kind := d.FileType()
	if kind == unix.S_IFBLK {
		r.typ = 'b'
	}
	return r, d.Access != edit.NoAccess && (kind == unix.S_IFCHR || kind == unix.S_IFBLK)
}

// writeRules allows devices in a cgroup of version 1. The kernel takes one rule per write.
func writeRules(dir string, rules []rule) error {
	f, err := os.OpenFile(filepath.Join(dir, "devices.allow"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, r := range rules {
		if _, err := f.WriteString(r.String()); err != nil {
			return fmt.Errorf("allow %q: %w", r, err)
		}
	}
	return nil
}

// allowInCgroup adds rules to the cgroup that restricts a process's devices: version 1 if its
// devices controller is mounted, otherwise version 2.
func allowInCgroup(pid int, rules []rule) error {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return err
	}
	v1, v2 := parseCgroup(string(text))
	mounts, err := hostfs.Mounts()
	if err != nil {
		return err
	}
	if dir := cgroupDir(mounts, v1, "cgroup"); dir != "" {
		return writeRules(dir, rules)
	}
	if dir := cgroupDir(mounts, v2, "cgroup2"); dir != "" {
		return prependToAll(dir, rules)
	}
	return fmt.Errorf("no cgroup hierarchy that restricts devices is mounted (process %d is in %q and %q): %w", pid,
		v1, v2, errdefs.ErrNotFound)
}

// parseCgroup reads /proc/PID/cgroup, cgroups(7): the paths in the hierarchy of the
// devices controller, and in that of version 2.
func parseCgroup(text string) (v1, v2 string) {
	for line := range strings.Lines(text) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		switch {
		case !ok || !strings.HasPrefix(path, "/"):
		case controllers == "":
			v2 = path
		case slices.Contains(strings.Split(controllers, ","), "devices"):
			v1 = path
		}
	}
	return v1, v2
}

// cgroupDir finds the directory of a cgroup in the mount table, or "". The hierarchy is the devices
// controller's ("cgroup") or version 2's ("cgroup2"). The last matching mount counts, because it
// covers the others.
func cgroupDir(mounts []hostfs.Mount, path, fsType string) (dir string) {
	if path == "" {
		return ""
	}
	for _, m := range mounts {
		if m.FSType != fsType || fsType == "cgroup" && !slices.Contains(m.Super, "devices") {
			continue
		}
		rel, below := strings.CutPrefix(path, strings.TrimSuffix(m.Root, "/"))
		if !below || rel != "" && rel[0] != '/' || slices.Contains(strings.Split(rel, "/"), "..") {
			continue
		}
		dir = filepath.Join(m.Point, rel)
	}
	return dir
}

// rootless reports whether this process is in a user namespace other than the host's.
func rootless() bool {
	_, inside := hostfs.UserNamespace()
	return inside
}
