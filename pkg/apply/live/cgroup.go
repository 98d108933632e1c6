// SPDX-License-Identifier: Apache-2.0

package live

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// deviceCgroup is where a process's devices are controlled.
type deviceCgroup struct {
	dir string // "" where nothing controls them
	v2  bool
}

// allow opens the device cgroup of a process for devices: version 1 by a line for
// each, version 2 by a program (see bpf.go).
func allow(pid int, devices []edits.Device) error {
	var rules []rule
	for i := range devices {
		if r, ok := ruleOf(&devices[i]); ok && !slices.Contains(rules, r) {
			rules = append(rules, r)
		}
	}
	if len(rules) == 0 {
		return nil
	}
	cg, err := cgroupOf(pid)
	if err == nil && cg.dir != "" {
		if cg.v2 {
			err = amend(cg.dir, rules)
		} else {
			err = writeRules(cg.dir, rules)
		}
	}
	switch {
	case err == nil:
		return nil
	case (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && rootless():
		// Nobody but the host's root restricts devices: there the node's owner and mode
		// are what counts.
		return nil
	}
	return fmt.Errorf("open the device cgroup of process %d: %w", pid, err)
}

// rule is one device that may be used.
type rule struct {
	typ          byte // b or c
	major, minor uint32
	access       string // of r, w and m
}

func (r rule) String() string {
	return string(r.typ) + " " + strconv.FormatUint(uint64(r.major), 10) + ":" + strconv.FormatUint(uint64(r.minor), 10) + " " + r.access
}

func ruleOf(d *edits.Device) (rule, bool) {
	r := rule{major: uint32(d.Major), minor: uint32(d.Minor), access: d.Access}
	switch d.Type {
	case "c", "u":
		r.typ = 'c'
	case "b":
		r.typ = 'b'
	default:
		return r, false
	}
	if r.access == "" {
		r.access = "rwm"
	}
	return r, d.Access != edits.NoAccess
}

func writeRules(dir string, rules []rule) error {
	name := filepath.Join(dir, "devices.allow")
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	for _, r := range rules {
		if _, err := unix.Write(fd, []byte(r.String())); err != nil {
			return fmt.Errorf("write %q to %s: %w", r, name, err)
		}
	}
	return nil
}

// cgroupOf finds the cgroup that controls a process's devices: of version 1 where
// the controller is mounted, else of version 2.
func cgroupOf(pid int) (deviceCgroup, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return deviceCgroup{}, err
	}
	v1, v2 := parseCgroup(string(text))
	mounts, err := hostfs.Mounts()
	if err != nil {
		return deviceCgroup{}, err
	}
	if v1 != "" {
		if dir, ok := cgroupDir(mounts, v1, isDevices); ok {
			return deviceCgroup{dir: dir}, nil
		}
	}
	if v2 != "" {
		if dir, ok := cgroupDir(mounts, v2, isUnified); ok {
			return deviceCgroup{dir: dir, v2: true}, nil
		}
	}
	return deviceCgroup{}, fmt.Errorf("no hierarchy of cgroups that controls devices is mounted here (process %d is in %q and %q): %w", pid, v1, v2, errdefs.ErrNotFound)
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

// cgroupDir is where a cgroup is, by the mounts. Of several the last one counts, which
// covers the others.
func cgroupDir(mounts []hostfs.Mount, path string, hierarchy func(*hostfs.Mount) bool) (dir string, ok bool) {
	for i := range mounts {
		m := &mounts[i]
		if !hierarchy(m) {
			continue
		}
		rel, below := strings.CutPrefix(path, strings.TrimSuffix(m.Root, "/"))
		if !below || rel != "" && rel[0] != '/' || slices.Contains(strings.Split(rel, "/"), "..") {
			continue
		}
		dir, ok = filepath.Join(m.Point, rel), true
	}
	return dir, ok
}

func isDevices(m *hostfs.Mount) bool {
	return m.FSType == "cgroup" && slices.Contains(m.Super, "devices")
}

func isUnified(m *hostfs.Mount) bool { return m.FSType == "cgroup2" }

// rootless reports that this process is in a user namespace that is not the host's.
func rootless() bool {
	_, inside := hostfs.UserNamespace()
	return inside
}
