// SPDX-License-Identifier: Apache-2.0

package jail

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// CgroupMounts returns the mount points of cgroup hierarchies of both versions.
func CgroupMounts() ([]string, error) {
	all, err := hostfs.Mounts()
	var mounts []string
	for i := range all {
		if strings.HasPrefix(all[i].FSType, "cgroup") {
			mounts = append(mounts, all[i].Point)
		}
	}
	return mounts, err
}

// cgroupsUsable returns nil if device cgroups can be created.
func cgroupsUsable() error {
	mounts, err := CgroupMounts()
	if err != nil {
		return fmt.Errorf("cgroups cannot be used: %w", err)
	}
	for _, m := range mounts {
		_, v1 := os.Stat(filepath.Join(m, "devices.allow"))
		_, root := os.Stat(filepath.Join(m, "devices.list"))
		_, v2 := os.Stat(filepath.Join(m, "cgroup.controllers"))
		// In a hybrid setup, the version 2 hierarchy does not control devices.
		if v1 != nil && root != nil && (v2 != nil || len(mounts) > 1) {
			continue
		}
		probe := filepath.Join(m, fmt.Sprintf("jackfield-probe-%d", os.Getpid()))
		if err := os.Mkdir(probe, 0o755); err != nil {
			return fmt.Errorf("cgroups cannot be made: %w", err)
		}
		return os.Remove(probe)
	}
	return fmt.Errorf("cgroups cannot be used: no hierarchy with devices is mounted")
}

// keep waits for the end of the outer process, which closes the pipe, and removes the cgroups that it left.
func keep(cgroup string, pipe io.Reader) error {
	if _, err := io.Copy(io.Discard, pipe); err != nil {
		return err
	}
	// The jail's processes die with the outer process, but a moment later.
	var err error
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if err = RemoveCgroup(cgroup); err == nil {
			return nil
		}
	}
	return fmt.Errorf("remove cgroups %q: %w", cgroup, err)
}

// RemoveCgroup removes a cgroup and its children from all hierarchies. It never ends a process.
func RemoveCgroup(cgroup string) error {
	mounts, err := CgroupMounts()
	if err != nil {
		return err
	}
	var errs []error
	for _, m := range mounts {
		errs = append(errs, removeTree(filepath.Join(m, cgroup)))
	}
	return errors.Join(errs...)
}

// removeTree removes the directories of a cgroup from the bottom up. The kernel removes the files.
func removeTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
