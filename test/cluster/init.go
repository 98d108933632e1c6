// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// initEnv carries the configuration of a node's first process.
const initEnv = "JACKFIELD_CLUSTER_NODE"

// initConfig is what the node's first process does.
type initConfig struct {
	HostName string
	// Disk is the directory whose diskDirs are mounted over those of the jail; empty: they are not.
	Disk string
	// Services are started in this order, and again when they end.
	Services []service
}

// service is a program that the node's first process keeps running.
type service struct {
	Args []string
	Env  []string
	// Log is a file that survives the node.
	Log string
}

// restartDelay is the time between the end of a service and its next start.
const restartDelay = 100 * time.Millisecond

// runInit is the node's first process, in namespaces of its own. It mounts what does not
// survive a reboot, keeps the services running, and reaps orphans. It returns an error or never.
func runInit() error {
	if os.Getpid() != 1 {
		return fmt.Errorf("start node: process %d is not the first of its namespace", os.Getpid())
	}
	var config initConfig
	if err := json.Unmarshal([]byte(os.Getenv(initEnv)), &config); err != nil {
		return fmt.Errorf("start node: read %s: %w", initEnv, err)
	}
	// Logs are opened first, because /run is replaced.
	logs := make([]*os.File, len(config.Services))
	for i, s := range config.Services {
		f, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("start node: %w", err)
		}
		logs[i] = f
	}
	if err := layOut(config.Disk); err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	if err := unix.Sethostname([]byte(config.HostName)); err != nil {
		return fmt.Errorf("start node: set host name: %w", err)
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return fmt.Errorf("start node: wait for the network: %w", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("start node: %w", err)
	}
	running := map[int]int{} // from process to service
	start := func(i int) error {
		s := config.Services[i]
		p, err := os.StartProcess(s.Args[0], s.Args, &os.ProcAttr{Dir: "/", Env: s.Env, Files: []*os.File{null, logs[i], logs[i]}})
		if err != nil {
			return fmt.Errorf("start %q: %w", s.Args[0], err)
		}
		running[p.Pid] = i
		return nil
	}
	for i := range config.Services {
		if err := start(i); err != nil {
			return err
		}
	}
	// This calls wait4 itself, because the process inherits children that it did not start.
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for services: %w", err)
		}
		i, ok := running[pid]
		if !ok {
			continue
		}
		delete(running, pid)
		fmt.Fprintf(logs[i], "node: %s ended (status %#x) and is started again\n", filepath.Base(config.Services[i].Args[0]), ws)
		time.Sleep(restartDelay)
		if err := start(i); err != nil {
			return err
		}
	}
}

// kubeletSysctls are the machine-wide kernel parameters that a kubelet sets, with the values that it wants.
func kubeletSysctls() map[string]string {
	return map[string]string{
		"vm/overcommit_memory":      "1",
		"vm/panic_on_oom":           "0",
		"kernel/panic":              "10",
		"kernel/panic_on_oops":      "1",
		"kernel/keys/root_maxkeys":  "1000000",
		"kernel/keys/root_maxbytes": "25000000",
	}
}

// layOut mounts what a machine has after it was switched on: its disk, an empty /run and /var/log, and its own
// /proc.
func layOut(disk string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make / private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if disk != "" {
		for _, dir := range diskDirs() {
			if err := unix.Mount(disk+dir, dir, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("mount %s: %w", dir, err)
			}
		}
	}
	if err := replaceRun(); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", "/var/log", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /var/log: %w", err)
	}
	if err := hideSysctls("/run/sysctl"); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("make / shared: %w", err)
	}
	return nil
}

// replaceRun mounts an empty /run. Of the old one it keeps the machine's directories, which links of the jail
// lead to.
func replaceRun() error {
	host, err := os.Open("/run/host")
	if err != nil {
		return err
	}
	defer host.Close()
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	if err := os.Mkdir("/run/host", 0o755); err != nil {
		return err
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", host.Fd()), "/run/host", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep /run/host: %w", err)
	}
	return nil
}

// hideSysctls mounts private files over the kernel parameters that a kubelet would change on the machine.
func hideSysctls(dir string) error {
	for name, value := range kubeletSysctls() {
		target, file := filepath.Join("/proc/sys", name), filepath.Join(dir, name)
		if _, err := os.Stat(target); err != nil {
			return fmt.Errorf("hide sysctl: %w", err)
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("hide sysctl: %w", err)
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return fmt.Errorf("hide sysctl: %w", err)
		}
		if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("hide sysctl %q: %w", name, err)
		}
	}
	return nil
}
