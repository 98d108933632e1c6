// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/test/e2e/jail"
)

// pluginLocks are the files and the sixteen directories at most that the plugin locks. It creates each when it
// needs it first, and keeps it.
var pluginLocks = regexp.MustCompile(`^/run/jackfield/(hook|hook/keeper|rights|rights/[0-9a-f])$`)

// Inventory lists what a pod or a runtime could leave on the machine, one sorted line each: processes,
// mounts, network interfaces and namespaces, cgroups, and everything in the given directories. It excludes
// what containerd keeps for itself after the first pod, except below the given directories, and pluginLocks.
func Inventory(dirs ...string) ([]string, error) {
	var found []string
	procs, err := processesWith("")
	if err != nil {
		return nil, err
	}
	for _, pid := range procs {
		if cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && len(cmdline) > 0 {
			found = append(found, fmt.Sprintf("process %d %s", pid, strings.ReplaceAll(strings.TrimRight(string(cmdline), "\x00"), "\x00", " ")))
		}
	}
	mounts, err := mountPoints()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		found = append(found, "mount "+m)
	}
	ifs, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range ifs {
		found = append(found, "interface "+i.Name)
	}
	for _, dir := range dirs {
		skip := slices.DeleteFunc([]string{nodesDir, "/run/containerd", "/run/host", "/var/lib/cni"},
			func(s string) bool { return dir == s || strings.HasPrefix(dir, s+"/") })
		err := walk(dir, func(path string, _ fs.DirEntry) error {
			if slices.Contains(skip, path) {
				return fs.SkipDir
			}
			if !pluginLocks.MatchString(path) {
				found = append(found, "file "+path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	hierarchies, err := jail.CgroupMounts()
	if err != nil {
		return nil, err
	}
	for _, h := range hierarchies {
		err := walk(filepath.Join(h, jail.CgroupParent()), func(path string, d fs.DirEntry) error {
			// The keeper removes the parent itself.
			if d.IsDir() && strings.TrimPrefix(path, h) != jail.CgroupParent() {
				found = append(found, "cgroup "+path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	return found, nil
}

// Leftovers returns what is in after and was not in before.
func Leftovers(before, after []string) []string {
	return slices.DeleteFunc(slices.Clone(after), func(s string) bool { return slices.Contains(before, s) })
}

// walk is filepath.WalkDir for trees that change meanwhile.
func walk(dir string, f func(string, fs.DirEntry) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return f(path, d)
	})
}

// processesWith returns the processes that have arg among their arguments. With "" it returns all processes.
func processesWith(arg string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if arg != "" {
			cmdline, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
			if err != nil || !slices.Contains(strings.Split(string(cmdline), "\x00"), arg) {
				continue
			}
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// mountPoints returns all mount points, in the order they were mounted.
func mountPoints() ([]string, error) {
	mounts, err := hostfs.Mounts()
	points := make([]string, len(mounts))
	for i := range mounts {
		points[i] = mounts[i].Point
	}
	return points, err
}

// unmountBelow unmounts everything in and below a directory.
func unmountBelow(dir string) error {
	points, err := mountPoints()
	if err != nil {
		return err
	}
	slices.Reverse(points)
	var errs []error
	for _, p := range points {
		if p == dir || strings.HasPrefix(p, dir+"/") {
			if err := unix.Unmount(p, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
				errs = append(errs, fmt.Errorf("unmount %q: %w", p, err))
			}
		}
	}
	return errors.Join(errs...)
}
