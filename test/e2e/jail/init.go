// SPDX-License-Identifier: Apache-2.0

package jail

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// hostDir contains the machine's own directories inside the jail, under their own names.
const hostDir = "/run/host"

// shadowed names the directories that the jail replaces, each with the machine's entries that are hidden.
func shadowed() map[string][]string {
	return map[string][]string{
		"/etc":     {"cdi", "cni", "containerd", "containers", "crio", "jackfield", "kubernetes", "nri"},
		"/opt":     {"cni", "containerd", "nri"},
		"/var/lib": {"cni", "containerd", "containers", "crio", "jackfield", "kubelet", "nri"},
	}
}

// runInit is the jail's first process: it sets up the jail, starts the program inside, and reaps orphans
// until the program ends.
func runInit(cgroup string) (int, error) {
	if os.Getpid() != 1 {
		return 1, fmt.Errorf("set up jail: process %d is not the first of its namespace", os.Getpid())
	}
	if err := layOut(); err != nil {
		return 1, fmt.Errorf("set up jail: %w", err)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGQUIT, unix.SIGHUP)

	cmd := self(stageInside, cgroup, "TMPDIR="+TempDir)
	child, err := os.StartProcess(cmd.Path, cmd.Args, &os.ProcAttr{
		Env: cmd.Environ(), Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, fmt.Errorf("set up jail: %w", err)
	}
	go func() {
		for s := range signals {
			child.Signal(s)
		}
	}()
	// This calls wait4 itself, because the process inherits children that it did not start.
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, fmt.Errorf("wait in jail: %w", err)
		case pid == child.Pid && ws.Exited():
			return ws.ExitStatus(), nil
		case pid == child.Pid && ws.Signaled():
			return 128 + int(ws.Signal()), nil
		}
	}
}

func layOut() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	// The new /proc shows this PID namespace.
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	// On Debian /var/run links to /run. Elsewhere, the jail links it.
	if target, err := filepath.EvalSymlinks("/var/run"); err == nil && target != "/run" {
		return fmt.Errorf("/var/run is %q and not /run", target)
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for dir, hidden := range shadowed() {
		if err := shadow(dir, hidden); err != nil {
			return err
		}
	}
	if err := os.Mkdir(TempDir, 0o1777); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make / shared: %w", err)
	}
	return loopbackUp()
}

// shadow mounts a tmpfs over a directory, with a symbolic link for each entry that is not hidden.
func shadow(dir string, hidden []string) error {
	old, tmp := hostDir+dir, "/run/new"
	for _, d := range []string{old, tmp} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(dir, old, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep %s: %w", dir, err)
	}
	if err := unix.Mount("tmpfs", tmp, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("shadow %s: %w", dir, err)
	}
	entries, err := os.ReadDir(old)
	if err != nil {
		return fmt.Errorf("shadow %s: %w", dir, err)
	}
	for _, e := range entries {
		if slices.Contains(hidden, e.Name()) {
			continue
		}
		if err := os.Symlink(filepath.Join(old, e.Name()), filepath.Join(tmp, e.Name())); err != nil {
			return fmt.Errorf("shadow %s: %w", dir, err)
		}
	}
	if err := unix.Mount(tmp, dir, "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("shadow %s: %w", dir, err)
	}
	return os.Remove(tmp)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("bring up lo: %w", err)
	}
	return nil
}
