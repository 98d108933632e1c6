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

	"golang.org/x/sys/unix"
)

// view is what a process sees of the host, by the inodes of its namespaces.
type view struct {
	PIDs   uint64 `json:"pids,omitempty"`
	Mounts uint64 `json:"mounts,omitempty"`
}

func here() view { return view{nsInode("pid"), nsInode("mnt")} }

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
}

// Left lists what the runtime never had removed, of containers of this owner: those
// whose record is older than age, and whose staging directory no process of the host
// has mounted. Containers of which this process could not see the processes are not
// among them; nor is anything when the look takes longer than patience.
func (s *Store) Left(age, patience time.Duration) ([]Left, error) {
	deadline := time.Now().Add(patience)
	before := time.Now().Add(-age)
	old, idle, err := s.old(before)
	if err != nil || len(old)+len(idle) == 0 {
		return nil, err
	}
	if len(old) > 0 {
		alive, err := mounted(s.containers(), deadline)
		if err != nil {
			return nil, fmt.Errorf("look which containers of state directory %q live: %w", s.dir, err)
		}
		old = slices.DeleteFunc(old, func(l Left) bool { return alive[l.Container] })
	}
	return append(old, idle...), nil
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
					containers = append(containers, Left{sid, cid, written})
				}
			}
		}
		if written, ok := olderThan(dir, before); !some && ok && len(sandboxes) < mostLooked && s.bundleGone(dir, see) {
			sandboxes = append(sandboxes, Left{sid, "", written})
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
	if l.Container != "" {
		if err = errors.Join(checkID("container", l.Container), checkID("sandbox", l.Sandbox)); err == nil {
			err = s.removeLocked(l.Sandbox, l.Container)
		}
		if err == nil {
			err = os.Remove(file)
		}
	}
	unlock()
	if err != nil {
		return false, fmt.Errorf("remove what is left of container %q: %w", l.Container, err)
	}
	if l.Container == "" || l.Container == l.Sandbox {
		return true, s.RemoveIdleSandbox(l.Sandbox)
	}
	return true, s.forget(l.Sandbox)
}

// forget removes a sandbox of which nothing is recorded any more but where its bundle
// was. What was made for its sockets stays for its own end.
func (s *Store) forget(sandboxID string) error {
	sandbox := filepath.Join(s.sandboxes(), sandboxID)
	if names, err := readNames(sandbox); err == nil && slices.Equal(names, []string{bundleFile}) {
		if err := os.Remove(filepath.Join(sandbox, bundleFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err := os.Remove(sandbox)
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("remove record of sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// mounted are the containers whose directory, or one in it, some process of the host
// has mounted. dir is the directory of them all.
func mounted(dir string, deadline time.Time) (map[string]bool, error) {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer proc.Close()
	alive, seen := make(map[string]bool), make(map[string]bool)
	for n := 0; ; {
		names, err := proc.Readdirnames(512)
		for _, name := range names {
			if name[0] < '0' || name[0] > '9' {
				continue
			}
			if n++; n > mostProcesses || time.Now().After(deadline) {
				return nil, fmt.Errorf("%d processes are too many to look at in time: %w", n, os.ErrDeadlineExceeded)
			}
			if err := mountedIn("/proc/"+name, dir, alive, seen); err != nil {
				return nil, err
			}
		}
		if errors.Is(err, io.EOF) {
			return alive, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// mountedIn reads the mount table of a process, once for each mount namespace.
func mountedIn(proc, dir string, alive, seen map[string]bool) error {
	ns, err := os.Readlink(proc + "/ns/mnt")
	if err != nil || seen[ns] {
		// It has ended, is a kernel thread's, or another user's, who has none of ours.
		return nil
	}
	f, err := os.Open(proc + "/mountinfo")
	if err != nil {
		return nil
	}
	defer f.Close()
	// The file system that the directory is of can be mounted elsewhere: what counts is
	// how a path in it ends.
	marker := []byte("/" + filepath.Base(dir) + "/")
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
		if !bytes.Contains(line, marker) {
			continue
		}
		if field := bytes.Fields(line); len(field) > 3 {
			for rest := field[3]; ; {
				_, after, ok := bytes.Cut(rest, marker)
				if !ok {
					break
				}
				id, _, _ := bytes.Cut(after, []byte("/"))
				alive[string(id)] = true
				rest = after
			}
		}
	}
	seen[ns] = true
	return nil
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
	ns, bundle, ok := strings.Cut(string(data), " ")
	if !ok || ns != strconv.FormatUint(see.Mounts, 10) || !filepath.IsAbs(bundle) {
		return false
	}
	var st unix.Stat_t
	return errors.Is(unix.Lstat(s.host.Path(bundle), &st), unix.ENOENT)
}
