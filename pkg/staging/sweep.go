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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// view is what a process sees of the host, by the inodes of its namespaces.
type view struct {
	PIDs   uint64 `json:"pids,omitempty"`
	Mounts uint64 `json:"mounts,omitempty"`
	At     int64  `json:"at,omitempty"` // when, in seconds since 1970
}

func here() view { return view{nsInode("pid"), nsInode("mnt"), time.Now().Unix()} }

func nsInode(name string) uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/self/ns/"+name, &st) != nil {
		return 0
	}
	return st.Ino
}

const (
	// Settled is the age from which on a container is looked for whose record is
	// there: a runtime is long done with making one.
	Settled = 10 * time.Minute

	sweptFile = "swept"
	// Bounds of one look: records, processes, and bytes of one mount table.
	mostLooked     = 4096
	mostProcesses  = 100000
	mostMountTable = 64 << 20
)

// Left is what is left of a container or of a sandbox that is gone.
type Left struct {
	Sandbox   string
	Container string // "" for what belongs to the sandbox alone
	written   time.Time
	begun     int64 // when it was written down, in seconds since 1970
}

// Left lists what the runtime never had removed, of containers of this owner: those
// whose record is older than age, and whose staging directory no process of the host
// has mounted. Containers of which this process could not see the processes are not
// among them; nor those begun before a process was started that this one may not
// look at; nor is anything when the look takes longer than patience.
func (s *Store) Left(age, patience time.Duration) ([]Left, error) {
	deadline := time.Now().Add(patience)
	before := time.Now().Add(-age)
	old, idle, err := s.old(before)
	if err != nil || len(old)+len(idle) == 0 {
		return nil, err
	}
	if len(old) > 0 {
		look := look{dir: s.containers(), alive: make(map[string]bool), seen: make(map[string]bool)}
		if err := look.all(deadline); err != nil {
			return nil, fmt.Errorf("look which containers of state directory %q live: %w", s.dir, err)
		}
		old = slices.DeleteFunc(old, func(l Left) bool { return look.alive[l.Container] || l.begun <= look.unseen })
	}
	return append(old, idle...), nil
}

// Unmounted returns those of the containers whose staging directory no process of the host
// has mounted, nor a directory in it. begun maps their IDs to when each was recorded: one
// that was recorded before a process started that this one may not inspect is left out. The
// caller knows that this process sees the containers' processes.
func (s *Store) Unmounted(begun map[string]time.Time, timeout time.Duration) ([]string, error) {
	look := look{dir: s.containers(), alive: make(map[string]bool), seen: make(map[string]bool)}
	if err := look.all(time.Now().Add(timeout)); err != nil {
		return nil, fmt.Errorf("check which containers of state directory %q have mounts: %w", s.dir, err)
	}
	var ids []string
	for id, at := range begun {
		if !look.alive[id] && at.Unix() > look.unseen {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// old lists containers with an old record, and sandboxes without any container whose
// own bundle is gone.
func (s *Store) old(before time.Time) (containers, sandboxes []Left, err error) {
	see := here()
	sids, err := readNames(s.sandboxes())
	if err != nil {
		return nil, nil, err
	}
	for _, sid := range sids {
		dir := filepath.Join(s.sandboxes(), sid)
		names, err := readNames(dir)
		if err != nil {
			return nil, nil, err
		}
		some := false
		for _, name := range names {
			cid, ok := strings.CutSuffix(name, containerSuffix)
			if !ok {
				continue
			}
			some = true
			if written, ok := olderThan(filepath.Join(dir, name), before); ok && len(containers) < mostLooked {
				if r := s.readRecord(sid, cid); r.Owner == s.opts.Owner && r.See.PIDs == see.PIDs {
					containers = append(containers, Left{sid, cid, written, r.See.At})
				}
			}
		}
		if written, ok := olderThan(dir, before); !some && ok && len(sandboxes) < mostLooked && s.bundleGone(dir, see) {
			sandboxes = append(sandboxes, Left{sid, "", written, 0})
		}
	}
	return containers, sandboxes, nil
}

func olderThan(file string, before time.Time) (time.Time, bool) {
	fi, err := os.Lstat(file)
	if err != nil {
		return time.Time{}, false
	}
	return fi.ModTime(), fi.ModTime().Before(before)
}

// Sweep removes what [Store.Left] lists, and says how many containers and sandboxes
// that were.
func (s *Store) Sweep(age, patience time.Duration) (int, error) {
	left, err := s.Left(age, patience)
	if err != nil {
		return 0, err
	}
	n := 0
	var errs []error
	for _, l := range left {
		ok, err := s.sweep(l)
		if ok {
			n++
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.SweepClaims())
	return n, errors.Join(errs...)
}

// SweepNowAndThen is Sweep of what is [Settled], unless some process did that so lately.
func (s *Store) SweepNowAndThen(patience time.Duration) (int, error) {
	file := filepath.Join(s.dir, sweptFile)
	now := time.Now()
	if fi, err := os.Lstat(file); err == nil && now.Sub(fi.ModTime()).Abs() < Settled {
		return 0, nil
	}
	// Beforehand, so that of many at a time one does.
	if err := create(file, nil, 0o600); err != nil {
		return 0, err
	}
	if err := os.Chtimes(file, time.Time{}, now); err != nil {
		return 0, err
	}
	return s.Sweep(Settled, patience)
}

// sweep removes what is left, unless somebody began anew meanwhile.
func (s *Store) sweep(l Left) (bool, error) {
	file := filepath.Join(s.sandboxes(), l.Sandbox)
	if l.Container != "" {
		file = s.recordFile(l.Sandbox, l.Container)
	}
	unlock, err := s.lock()
	if err != nil {
		return false, err
	}
	fi, err := os.Lstat(file)
	if err != nil || !fi.ModTime().Equal(l.written) {
		unlock()
		return false, nil
	}
	var sockets []Socket
	if l.Container != "" {
		if err = errors.Join(checkID("container", l.Container), checkID("sandbox", l.Sandbox)); err == nil {
			err = s.removeLocked(l.Sandbox, l.Container)
		}
		if err == nil {
			sockets = s.readRecord(l.Sandbox, l.Container).Sockets
			err = os.Remove(file)
		}
	}
	unlock()
	if err == nil {
		err = s.revokeAccess(sockets, "")
	}
	if err != nil {
		return false, fmt.Errorf("remove what is left of container %q: %w", l.Container, err)
	}
	if l.Container == "" || l.Container == l.Sandbox {
		return true, s.RemoveIdleSandbox(l.Sandbox)
	}
	return true, s.forget(l.Sandbox)
}

// forget removes a sandbox of which no container is recorded any more. What was created for
// its sockets, and what it claims, stays for its own end. A shared store may never learn of
// that end, so there the sockets of the host are released with the last container.
func (s *Store) forget(sandboxID string) error {
	sandbox := filepath.Join(s.sandboxes(), sandboxID)
	names, err := readNames(sandbox)
	if err == nil && len(names) > 0 && !slices.ContainsFunc(names, func(name string) bool { return name != bundleFile && name != claimedFile }) {
		if slices.Contains(names, claimedFile) {
			if !s.opts.Shared {
				return nil
			}
			if directories, err := s.claims.ReleaseSockets(s.holder(sandboxID)); err != nil || directories {
				return err
			}
		}
		for _, name := range names {
			if err := os.Remove(filepath.Join(sandbox, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	err = os.Remove(sandbox)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("remove record of sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// look is a look at what the processes of the host have mounted of the directory of
// all containers.
type look struct {
	dir   string
	alive map[string]bool // containers whose directory, or one in it, is mounted
	seen  map[string]bool // mount namespaces
	// unseen is when the youngest process was started that may not be looked at, in
	// seconds since 1970. It is of no container that was begun later.
	unseen int64
}

func (k *look) all(deadline time.Time) error {
	proc, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer proc.Close()
	for n := 0; ; {
		names, err := proc.Readdirnames(512)
		for _, name := range names {
			if name[0] < '0' || name[0] > '9' {
				continue
			}
			if n++; n > mostProcesses || time.Now().After(deadline) {
				return fmt.Errorf("%d processes are too many to look at in time: %w", n, os.ErrDeadlineExceeded)
			}
			if err := k.process("/proc/" + name); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// process reads the mount table of a process, once for each mount namespace.
func (k *look) process(proc string) error {
	ns, err := os.Readlink(proc + "/ns/mnt")
	if err != nil {
		return k.hidden(proc, err)
	}
	if k.seen[ns] {
		return nil
	}
	f, err := os.Open(proc + "/mountinfo")
	if err != nil {
		return k.hidden(proc, err)
	}
	defer f.Close()
	// The file system that the directory is of can be mounted elsewhere: what counts is
	// how a path in it ends.
	marker := []byte("/" + filepath.Base(k.dir) + "/")
	lines := bufio.NewReaderSize(io.LimitReader(f, mostMountTable), 64<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			// Too long to be one of ours; the rest of it cannot be taken for one.
			continue
		}
		if err != nil {
			// It has ended meanwhile.
			return nil
		}
		mountedOf(line, marker, k.alive)
	}
	k.seen[ns] = true
	return nil
}

// mountedOf adds the containers of which a line of mountinfo, proc_pid_mountinfo(5),
// has the directory, or one in it, as a mount's root: what follows the marker there.
func mountedOf(line, marker []byte, alive map[string]bool) {
	if !bytes.Contains(line, marker) {
		return
	}
	field := bytes.Fields(line)
	if len(field) <= 3 {
		return
	}
	for rest := field[3]; ; {
		_, after, ok := bytes.Cut(rest, marker)
		if !ok {
			return
		}
		id, _, _ := bytes.Cut(after, []byte("/"))
		alive[string(id)] = true
		rest = after
	}
}

// hidden takes note of a process that may not be looked at: nobody knows what it has
// mounted. One that has ended, a thread of the kernel, and, in a user namespace, one
// of a user outside of it have nothing of ours.
func (k *look) hidden(proc string, err error) error {
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
		return nil // it has ended
	}
	started, kernel, ok := startOf(string(text))
	if !ok {
		return fmt.Errorf("read %s/stat: found %.80q: %w", proc, text, errdefs.ErrInvalidArgument)
	}
	if !kernel {
		var up unix.Sysinfo_t
		if err := unix.Sysinfo(&up); err != nil {
			return err
		}
		// A second more than it can be.
		k.unseen = max(k.unseen, time.Now().Unix()-up.Uptime+started+1)
	}
	return nil
}

// startOf reads /proc/PID/stat, proc_pid_stat(5): when the process was started, in
// seconds since the host was, and whether it is a thread of the kernel.
func startOf(stat string) (seconds int64, kernel, ok bool) {
	const (
		ticks     = 100       // a second, for every program (time(7), USER_HZ)
		ofKernel  = 0x20_0000 // PF_KTHREAD
		flags     = 9 - 3     // fields, counted from the one behind the name
		startTime = 22 - 3
	)
	_, rest, found := cutLast(stat, ") ")
	field := strings.Fields(rest)
	if !found || len(field) <= startTime {
		return 0, false, false
	}
	f, err := strconv.ParseUint(field[flags], 10, 32)
	t, err2 := strconv.ParseUint(field[startTime], 10, 63)
	if err != nil || err2 != nil {
		return 0, false, false
	}
	return int64(t) / ticks, f&ofKernel != 0, true
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

const bundleFile = "bundle"

// noteBundle writes down where the runtime keeps the sandbox's own bundle: where the
// container's is, with the one ID in the place of the other. The sandbox's own
// container is none of ours, so that nothing else tells its end.
func (s *Store) noteBundle(c *Container) error {
	if !s.opts.Shared || c.ID == c.SandboxID || c.Bundle == "" {
		return nil
	}
	elems := strings.Split(c.Bundle, "/")
	i := slices.Index(elems, c.ID)
	if i < 0 {
		return nil
	}
	elems[i] = c.SandboxID
	text := strconv.FormatUint(here().Mounts, 10) + " " + strings.Join(elems, "/")
	return create(filepath.Join(s.sandboxes(), c.SandboxID, bundleFile), []byte(text), 0o600)
}

// bundleGone reports that the bundle of a sandbox was, and is no more, where this
// process sees what the one saw that wrote it down.
func (s *Store) bundleGone(sandbox string, see view) bool {
	data, err := os.ReadFile(filepath.Join(sandbox, bundleFile))
	if err != nil {
		return false
	}
	bundle, ok := bundleIn(string(data), see)
	if !ok {
		return false
	}
	var st unix.Stat_t
	return errors.Is(unix.Lstat(s.host.Path(bundle), &st), unix.ENOENT)
}

// bundleIn is the host path that noteBundle wrote down; false where whoever did sees
// another host than see.
func bundleIn(text string, see view) (bundle string, ok bool) {
	ns, bundle, ok := strings.Cut(text, " ")
	if !ok || ns != strconv.FormatUint(see.Mounts, 10) || hostfs.CheckPath(bundle) != nil {
		return "", false
	}
	return bundle, true
}
