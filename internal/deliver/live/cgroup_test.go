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
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestParseCgroupFindsDirectoryOfEachVersion(t *testing.T) {
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
	if dir := cgroupDir(info, "/b/c", "cgroup"); dir != "/mnt/with space/c" {
		t.Error(dir)
	}
	if dir := cgroupDir(info, "/bc", "cgroup"); dir != "/sys/fs/cgroup/devices/bc" {
		t.Error(dir)
	}
	if dir := cgroupDir(info, "/u", "cgroup2"); dir != "/sys/fs/cgroup/unified/u" {
		t.Error(dir)
	}
	if dir := cgroupDir(info, "/../x", "cgroup2"); dir != "" {
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
		if dir := cgroupDir(hostfs.ParseMounts(mountinfo), v1, "cgroup"); strings.Contains("/"+v1+"/", "/../") && strings.Contains(dir, "..") {
			t.Errorf("%q", dir)
		}
	})
}

// newUnifiedCgroup creates a cgroup of version 2.
func newUnifiedCgroup(t *testing.T) string {
	t.Helper()
	requireRoot(t)
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, "cgroup.procs")); err != nil {
			continue
		}
		// A process in another PID namespace may have this process's ID.
		dir, err := os.MkdirTemp(mount, "jackfield-live-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			// A process that has been waited for may still be leaving the cgroup.
			if !testkit.Until(func() bool { err = os.Remove(dir); return !errors.Is(err, unix.EBUSY) }) || err != nil {
				t.Error(err)
			}
		})
		return dir
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("no cgroups of version 2, which CI has")
	}
	t.Skip("skipped: no cgroups of version 2 are mounted")
	return ""
}

// attachDenyAll attaches a program that denies all devices.
func attachDenyAll(t *testing.T, cgroup string, flags uint32) error {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, License: "Apache", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	dir, err := unix.Open(cgroup, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dir)
	return link.RawAttachProgram(link.RawAttachProgramOptions{Target: dir, Program: prog, Attach: ebpf.AttachCGroupDevice, Flags: flags})
}

// readInCgroup reads one byte of a device in a cgroup.
func readInCgroup(t *testing.T, cgroup, device string) string {
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

func TestPrependedRulesAllowDevice(t *testing.T) {
	for name, flags := range map[string]uint32{"multi": unix.BPF_F_ALLOW_MULTI, "override": unix.BPF_F_ALLOW_OVERRIDE, "none": 0} {
		t.Run(name, func(t *testing.T) {
			dir := newUnifiedCgroup(t)
			if err := prependRules(dir, []rule{{typ: 'c', major: 1, minor: 5, access: "r"}}); err != nil {
				t.Fatal(err) // without a program, devices are not restricted
			}
			if err := attachDenyAll(t, dir, flags); err != nil {
				t.Fatal(err)
			}
			if got := readInCgroup(t, dir, "/dev/zero"); got == "read" {
				t.Fatal("the program denies no device")
			}
			if err := prependRules(dir, []rule{{typ: 'b', major: 1, minor: 5, access: "rwm"}, {typ: 'c', major: 1, minor: 5, access: "w"}}); err != nil {
				t.Fatal(err)
			}
			if got := readInCgroup(t, dir, "/dev/zero"); got == "read" {
				t.Error("read with a rule for another device and a rule that only allows writing")
			}
			rules := []rule{{typ: 'c', major: 1, minor: 9, access: "rwm"}, {typ: 'c', major: 1, minor: 5, access: "r"}}
			for range 2 {
				if err := prependRules(dir, rules); err != nil {
					t.Fatal(err)
				}
			}
			for _, device := range []string{"/dev/zero", "/dev/urandom"} {
				if got := readInCgroup(t, dir, device); got != "read" {
					t.Errorf("%s: %s", device, got)
				}
			}
			if got := readInCgroup(t, dir, "/dev/random"); got == "read" {
				t.Error("read a device that is not granted")
			}
			fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
			got, err := link.QueryPrograms(link.QueryOptions{Target: fd, Attach: ebpf.AttachCGroupDevice})
			if err != nil || len(got.Programs) != 1 {
				t.Errorf("programs %+v, %v", got, err)
			}
			// The kernel accepts further programs only with the flags of the first one.
			for _, other := range []uint32{unix.BPF_F_ALLOW_MULTI, unix.BPF_F_ALLOW_OVERRIDE, 0} {
				if err := attachDenyAll(t, dir, other); (err == nil) != (other == flags) {
					t.Errorf("attached with flags %d, and another program with %d: %v", flags, other, err)
				}
			}
		})
	}
}

// Linux 6.17 to 7.1 write the field revision of a query even behind a shorter structure. The library passes a structure
// with this field, so it returns the revision that the kernel reports. Older kernels report 0.
func TestQueryForDeviceProgramsHasRoomForRevision(t *testing.T) {
	dir := newUnifiedCgroup(t)
	if err := attachDenyAll(t, dir, unix.BPF_F_ALLOW_MULTI); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var query struct { // union bpf_attr, linux/bpf.h
		target, attachType uint32
		_                  [6]uint64
		revision           uint64
	}
	query.target, query.attachType = uint32(fd), uint32(ebpf.AttachCGroupDevice)
	if _, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query)); errno != 0 {
		t.Fatal(errno)
	}
	got, err := link.QueryPrograms(link.QueryOptions{Target: fd, Attach: ebpf.AttachCGroupDevice})
	if err != nil || len(got.Programs) != 1 || got.Revision != query.revision {
		t.Errorf("programs %+v, %v, and the kernel's revision is %d", got, err, query.revision)
	}
}

// crun runs a container in a cgroup below its systemd scope. systemd attaches a program to the scope, and crun
// one to the cgroup below or none. The scope of another cgroup is not changed.
func TestPrependedRulesAllowDeviceBelowScope(t *testing.T) {
	outer := newUnifiedCgroup(t)
	newCgroup := func(dir string) string {
		t.Helper()
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if !testkit.Until(func() bool { return !errors.Is(os.Remove(dir), unix.EBUSY) }) {
				t.Errorf("cgroup %s is in use", dir)
			}
		})
		return dir
	}
	for name, want := range map[string]string{"container": "read", "other": "Operation not permitted"} {
		scope := newCgroup(filepath.Join(outer, "crun-"+name+".scope"))
		dir := newCgroup(filepath.Join(scope, name))
		if err := attachDenyAll(t, scope, unix.BPF_F_ALLOW_MULTI); err != nil {
			t.Fatal(err)
		}
		if err := prependToAll(dir, []rule{{typ: 'c', major: 1, minor: 5, access: "r"}}); err != nil {
			t.Fatal(err)
		}
		if got := readInCgroup(t, dir, "/dev/zero"); !strings.Contains(got, want) {
			t.Errorf("in cgroup %s: %s, want %s", name, got, want)
		}
	}
}
