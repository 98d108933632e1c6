// SPDX-License-Identifier: Apache-2.0

package live

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/busytest"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

func TestCgroupDir(t *testing.T) {
	v1, v2 := parseCgroup("12:pids:/a\n5:devices,freezer:/b/c\n1:name=systemd:/s\n0::/u\n")
	if v1 != "/b/c" || v2 != "/u" {
		t.Error(v1, v2)
	}
	if v1, v2 := parseCgroup("broken\n0:\n:devices:relative\n"); v1 != "" || v2 != "" {
		t.Error(v1, v2)
	}
	info := hostfs.ParseMounts("30 25 0:26 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n" +
		"31 25 0:27 /b /mnt/with\\040space rw shared:1 - cgroup cgroup rw,devices\n" +
		"32 25 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" +
		"33 25 0:29 /else /x rw - cgroup cgroup rw,devices\nbroken\n")
	if dir, ok := cgroupDir(info, "/b/c", isDevices); !ok || dir != "/mnt/with space/c" {
		t.Error(dir, ok)
	}
	if dir, ok := cgroupDir(info, "/bc", isDevices); !ok || dir != "/sys/fs/cgroup/devices/bc" {
		t.Error(dir, ok)
	}
	if dir, ok := cgroupDir(info, "/u", isUnified); !ok || dir != "/sys/fs/cgroup/unified/u" {
		t.Error(dir, ok)
	}
	if dir, ok := cgroupDir(info, "/../x", isUnified); ok {
		t.Error(dir)
	}
}

func FuzzCgroup(f *testing.F) {
	f.Add("5:devices:/b/c\n0::/u\n", "30 25 0:26 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n")
	f.Fuzz(func(t *testing.T, cgroup, mountinfo string) {
		v1, v2 := parseCgroup(cgroup)
		for _, path := range []string{v1, v2} {
			if path != "" && path[0] != '/' {
				t.Errorf("%q", path)
			}
		}
		if dir, ok := cgroupDir(hostfs.ParseMounts(mountinfo), v1, isDevices); ok && strings.Contains("/"+v1+"/", "/../") && strings.Contains(dir, "..") {
			t.Errorf("%q", dir)
		}
	})
}

// unified is a new cgroup of version 2.
func unified(t *testing.T) string {
	t.Helper()
	requireRoot(t)
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			continue
		}
		// Another process may have this one's number, in another PID namespace.
		dir, err := os.MkdirTemp(mount, "jackfield-live-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// A process that has been waited for may still be on its way out of it.
			if !busytest.Until(func() bool { err = os.Remove(dir); return !errors.Is(err, unix.EBUSY) }) || err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no cgroups of version 2, and CI promises them")
	}
	t.Skip("skipped: no cgroups of version 2 are mounted")
	return ""
}

// The program that denies everything, as a runtime's at its worst.
func denyAll(t *testing.T, cgroup string, flags uint32) {
	t.Helper()
	prog, err := load([]byte{mov64I, 0, 0, 0, 0, 0, 0, 0, exit, 0, 0, 0, 0, 0, 0, 0})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(prog)
	dir, err := unix.Open(cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	attr := struct{ targetFD, progFD, typ, flags, replaceFD uint32 }{uint32(dir), uint32(prog), attachDevice, flags, 0}
	if _, err := bpf(unix.BPF_PROG_ATTACH, &attr); err != nil {
		t.Fatal(err)
	}
}

// readIn reads a byte of a device in a cgroup.
func readIn(t *testing.T, cgroup, device string) string {
	t.Helper()
	dir, err := os.Open(cgroup)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cmd := exec.Command("dd", "if="+device, "bs=1", "count=1", "status=none")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if out, err := cmd.Output(); err == nil && len(out) == 1 {
		return "read"
	}
	return stderr.String()
}

func TestAmend(t *testing.T) {
	for name, flags := range map[string]uint32{"multi": allowMulti, "override": allowOverride, "none": 0} {
		t.Run(name, func(t *testing.T) {
			dir := unified(t)
			if err := amend(dir, []rule{{typ: 'c', major: 1, minor: 5, access: "r"}}); err != nil {
				t.Fatal(err) // without a program nothing is restricted
			}
			denyAll(t, dir, flags)
			if got := readIn(t, dir, "/dev/zero"); got == "read" {
				t.Fatal("the program does not restrict anything")
			}
			if err := amend(dir, []rule{{typ: 'b', major: 1, minor: 5, access: "rwm"}, {typ: 'c', major: 1, minor: 5, access: "w"}}); err != nil {
				t.Fatal(err)
			}
			if got := readIn(t, dir, "/dev/zero"); got == "read" {
				t.Error("read with the rights of another device, and the right to write")
			}
			rules := []rule{{typ: 'c', major: 1, minor: 9, access: "rwm"}, {typ: 'c', major: 1, minor: 5, access: "r"}}
			for range 2 {
				if err := amend(dir, rules); err != nil {
					t.Fatal(err)
				}
			}
			for _, device := range []string{"/dev/zero", "/dev/urandom"} {
				if got := readIn(t, dir, device); got != "read" {
					t.Errorf("%s: %s", device, got)
				}
			}
			if got := readIn(t, dir, "/dev/random"); got == "read" {
				t.Error("read what is not granted")
			}
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			if ids, got, err := attached(fd); err != nil || len(ids) != 1 || got != flags {
				t.Errorf("programs %v, flags %d, %v", ids, got, err)
			}
		})
	}
}
