// SPDX-License-Identifier: Apache-2.0

package jail

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// scenarioEnv names the scenario that a test binary runs in its jail.
const scenarioEnv = "JACKFIELD_JAIL_SCENARIO"

func TestMain(m *testing.M) {
	if os.Getenv(scenarioEnv) == "" {
		os.Exit(m.Run())
	}
	os.Exit(Run(func() ([]string, error) { return []string{"FROM_BEFORE=yes"}, nil }, scenario))
}

func scenario() int {
	switch os.Getenv(scenarioEnv) {
	case "look":
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			fmt.Println(err)
		}
		entries, _ := os.ReadDir("/run")
		fmt.Printf("before=%s tmp=%s addresses=%v run=%v\n", os.Getenv("FROM_BEFORE"), os.TempDir(), addrs, entries)
		if err := os.WriteFile("/etc/jackfield-jail-test", nil, 0o644); err != nil {
			fmt.Println(err)
		}
		if _, err := os.Stat("/etc/passwd"); err != nil {
			fmt.Println(err)
		}
		return 7
	case "mess": // leave processes, mounts and cgroups, and wait
		mounts, err := CgroupMounts()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		daemon := exec.Command("/bin/sleep", os.Getenv("MARK"))
		daemon.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := daemon.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		for _, m := range mounts {
			dir := filepath.Join(m, CgroupParent(), "a", "b")
			if err := os.MkdirAll(dir, 0o755); err == nil && strings.HasSuffix(m, "/devices") {
				if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, daemon.Process.Pid), 0o644); err != nil {
					fmt.Println(err)
				}
			}
		}
		if err := os.MkdirAll(os.Getenv("MARK_DIR"), 0o755); err != nil {
			fmt.Println(err)
		}
		if err := unix.Mount("tmpfs", os.Getenv("MARK_DIR"), "tmpfs", 0, ""); err != nil {
			fmt.Println(err)
		}
		fmt.Println("ready", CgroupParent())
		time.Sleep(time.Minute)
	}
	return 1
}

func require(t *testing.T) {
	t.Helper()
	if err := Possible(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestProcessSeesOnlyItsJail(t *testing.T) {
	require(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), scenarioEnv+"=look")
	out, _ := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("status is %d", code)
	}
	got := strings.Replace(string(out), " ::1/128", "", 1) // if there is IPv6
	if want := "before=yes tmp=/run/t addresses=[127.0.0.1/8] run=[d host/ d t/]\n"; got != want {
		t.Errorf("inside said %q, want %q", got, want)
	}
	if _, err := os.Lstat("/etc/jackfield-jail-test"); err == nil {
		t.Error("a file made in /etc reached the machine")
	}
	noCgroups(t, fmt.Sprintf("jackfield-%d-", cmd.Process.Pid))
}

// Nothing is left, however the outer process ends.
func TestJailLeavesNothing(t *testing.T) {
	require(t)
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			mark := fmt.Sprintf("%d.%d", 10000+os.Getpid(), sig)
			dir := filepath.Join(t.TempDir(), "mnt")
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), scenarioEnv+"=mess", "MARK="+mark, "MARK_DIR="+dir)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line := make([]byte, 256)
			n, err := stdout.Read(line)
			if err != nil || !strings.HasPrefix(string(line[:n]), "ready /jackfield-") {
				t.Errorf("it said %q, %v", line[:n], err)
			}
			if !running(t, mark) {
				t.Error("the daemon does not run")
			}
			start := time.Now()
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			noCgroups(t, fmt.Sprintf("jackfield-%d-", cmd.Process.Pid))
			for end := time.Now().Add(time.Minute); running(t, mark) && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
			}
			if running(t, mark) {
				t.Error("the daemon still runs")
			}
			if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), dir) {
				t.Errorf("the mount is still there: %v", err)
			}
			t.Logf("gone after %v", time.Since(start).Round(time.Millisecond))
		})
	}
}

// running reports whether any process has the argument.
func running(t *testing.T, arg string) bool {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if text, err := os.ReadFile(f); err == nil && strings.Contains(string(text), "\x00"+arg+"\x00") {
			return true
		}
	}
	return false
}

// noCgroups waits for the keeper.
func noCgroups(t *testing.T, prefix string) {
	t.Helper()
	mounts, err := CgroupMounts()
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		left = nil
		for _, m := range mounts {
			found, err := filepath.Glob(filepath.Join(m, prefix+"*"))
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, found...)
		}
		if len(left) == 0 {
			return
		}
	}
	t.Errorf("cgroups are left: %v", left)
}
