// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// mountScan finds the containers whose staging directory a process of the host has mounted.
type mountScan struct {
	dir        string          // of all containers
	mounted    map[string]bool // containers whose directory, or one in it, is mounted
	namespaces map[string]bool // mount namespaces that were read
	// hiddenSince is when the youngest process started that this process may not inspect, in
	// seconds since 1970. A container that was recorded later is not that process's.
	hiddenSince int64
}

// scanMounts finds the containers of a directory that are mounted.
func scanMounts(containersDir string, timeout time.Duration) (*mountScan, error) {
	k := &mountScan{dir: containersDir, mounted: make(map[string]bool), namespaces: make(map[string]bool)}
	if err := k.scanProcesses(time.Now().Add(timeout)); err != nil {
		return nil, fmt.Errorf("check which containers of state directory %q exist: %w", filepath.Dir(containersDir), err)
	}
	return k, nil
}

// isUnmounted reports whether certainly no process has a container's staging directory mounted.
// recordedAt is when the container was recorded, in seconds since 1970.
func (k *mountScan) isUnmounted(containerID string, recordedAt int64) bool {
	return !k.mounted[containerID] && recordedAt > k.hiddenSince
}

// scanProcesses reads the mount tables of all processes in /proc.
func (k *mountScan) scanProcesses(deadline time.Time) error {
	names, err := listNames("/proc")
	if err != nil {
		return err
	}
	n := 0
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		if n++; n > maxProcesses || time.Now().After(deadline) {
			return fmt.Errorf("inspect the mounts of all processes: stopped after %d of them: %w", n, os.ErrDeadlineExceeded)
		}
		if err := k.scanProcess("/proc/" + name); err != nil {
			return err
		}
	}
	return nil
}

// scanProcess reads the mount table of a process, once for each mount namespace.
func (k *mountScan) scanProcess(proc string) error {
	ns, err := os.Readlink(proc + "/ns/mnt")
	if errors.Is(err, os.ErrNotExist) {
		return k.scanOtherThreads(proc)
	}
	if err != nil {
		return k.noteHidden(proc, err)
	}
	if k.namespaces[ns] {
		return nil
	}
	f, err := os.Open(proc + "/mountinfo")
	if err != nil {
		return k.noteHidden(proc, err)
	}
	defer f.Close()
	// The file system of the directory can be mounted elsewhere, so only the end of a path in it counts.
	marker := []byte("/" + filepath.Base(k.dir) + "/")
	lines := bufio.NewScanner(io.LimitReader(f, maxMountTable))
	lines.Buffer(make([]byte, 64<<10), maxMountTable)
	for lines.Scan() {
		addMountedContainers(lines.Bytes(), marker, k.mounted)
	}
	k.namespaces[ns] = lines.Err() == nil // otherwise the process has ended
	return nil
}

// scanOtherThreads reads the mount tables of the threads of a process whose first thread has ended, and
// with it the content of /proc/PID. A process that has ended has no threads.
func (k *mountScan) scanOtherThreads(proc string) error {
	threads, err := filepath.Glob(proc + "/task/*")
	for _, thread := range threads {
		err = errors.Join(err, k.scanProcess(thread))
	}
	return err
}

// addMountedContainers adds the containers of a line of mountinfo, proc_pid_mountinfo(5). Their
// IDs follow the marker in the root of the mount.
func addMountedContainers(line, marker []byte, alive map[string]bool) {
	if !bytes.Contains(line, marker) {
		return
	}
	field := bytes.Fields(line)
	if len(field) <= 3 {
		return
	}
	for _, after := range bytes.Split(field[3], marker)[1:] {
		id, _, _ := bytes.Cut(after, []byte("/"))
		alive[string(id)] = true
	}
}

// noteHidden records when a process started whose mount table cannot be read for lack of
// permission. A process that has ended, a kernel thread and, in a user namespace, a process of
// a user outside of it have no staging directory mounted.
func (k *mountScan) noteHidden(proc string, err error) error {
	if !errors.Is(err, os.ErrPermission) {
		return nil
	}
	var st unix.Stat_t
	if unix.Lstat(proc, &st) != nil {
		return nil
	}
	if around, inside := hostfs.UserNamespace(); inside && st.Uid == around.Unmapped {
		return nil
	}
	text, err := os.ReadFile(proc + "/stat")
	if err != nil {
		return nil // the process has ended
	}
	started, kernel, ok := parseProcStat(string(text))
	if !ok {
		return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(
			"read %s/stat: invalid content %.80q: must be in the format of proc_pid_stat(5)", proc, text))
	}
	if !kernel {
		var up unix.Sysinfo_t
		if err := unix.Sysinfo(&up); err != nil {
			return err
		}
		// Both times are in whole seconds: round up.
		k.hiddenSince = max(k.hiddenSince, time.Now().Unix()-up.Uptime+started+1)
	}
	return nil
}

// parseProcStat parses /proc/PID/stat, proc_pid_stat(5). It returns when the process started,
// in seconds since boot, and whether it is a kernel thread.
func parseProcStat(stat string) (seconds int64, kernel, ok bool) {
	const (
		ticks     = 100       // per second, for every program (time(7), USER_HZ)
		ofKernel  = 0x20_0000 // PF_KTHREAD
		flags     = 9 - 3     // index of the field, counted from the field after the name
		startTime = 22 - 3
	)
	field := strings.Fields(stat[strings.LastIndex(stat, ") ")+1:])
	if !strings.Contains(stat, ") ") || len(field) <= startTime {
		return 0, false, false
	}
	f, err := strconv.ParseUint(field[flags], 10, 32)
	t, err2 := strconv.ParseUint(field[startTime], 10, 63)
	if err != nil || err2 != nil {
		return 0, false, false
	}
	return int64(t) / ticks, f&ofKernel != 0, true
}
