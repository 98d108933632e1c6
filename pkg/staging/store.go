// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/pathwatch"
)

// Directory modes: what a container is handed can be read by any user in it;
// the directories above it are not for other users of the host.
const (
	privateDir   = 0o700
	containerDir = 0o755
	viewFile     = 0o644
)

// Store is the state directory. It is safe for concurrent use.
type Store struct {
	host    hostfs.Root
	hostDir string // the state directory, as a host path
	dir     string // as a path of this process
	opts    Options
	status  Status
	// masked says that the process's umask takes something from the modes above,
	// so that each has to be set again.
	masked bool

	mu      sync.Mutex // of what follows, and of every mount
	held    map[string]*record
	sources map[string]*source // by the socket's host path
	watch   [2]*pathwatch.Watcher
	closed  bool
	keeper  int // the descriptor by which this process is the keeper, -1 where it is not
	bg      sync.WaitGroup
}

// Options change how a Store works. The zero value is a store of a process that
// makes or removes something and ends.
type Options struct {
	// Mode is what is wanted; "" is Auto.
	Mode Mode
	// Owner is recorded with each container. Retain removes this owner's only.
	Owner string
	// Watch keeps sockets alive: one that the host side makes anew is bound anew.
	Watch bool
	// Events, when not nil, is told what the store does by itself.
	Events Events
	// Shared is for a state directory in which processes that end make and remove
	// containers, each by itself, and one that stays watches over them.
	Shared bool
	// Present is for a process that makes no container, but watches over or removes
	// what others made: how those did it is as it is. With Watch it takes up the
	// containers that are there and those that come; without, it makes nothing.
	Present bool
}

// Events is told what a store does by itself. Its methods are called one at a time
// for each watcher, must not block for long, and must not call the store.
type Events interface {
	// Rebound tells that a socket was made anew by the host side, and was bound anew.
	Rebound(Rebound)
	// Failed tells of what could not be done, and will be tried again when the host
	// side makes the socket once more. Of sockets that a tenant can make it tells of
	// some only.
	Failed(error)
}

// Open makes the state directory ready. Its parent directories are made 0755;
// a state directory that another user owns or may write to is
// errdefs.ErrPermissionDenied.
func Open(host hostfs.Root, dir string, opts Options) (*Store, error) {
	s := &Store{host: host, hostDir: dir, dir: host.Path(dir), opts: opts, keeper: -1, held: make(map[string]*record), sources: make(map[string]*source)}
	own := []string{s.containers(), s.sandboxes(), s.claims()}
	if opts.Shared {
		own = append(own, s.ready())
	}
	for _, d := range own {
		if opts.Present && !opts.Watch {
			break
		}
		if err := os.MkdirAll(filepath.Dir(d), 0o755); err != nil {
			return nil, fmt.Errorf("make state directory %q: %w", dir, err)
		}
		if err := os.Mkdir(d, privateDir); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("make state directory %q: %w", dir, err)
		}
	}
	for _, d := range append([]string{s.dir}, own...) {
		var st unix.Stat_t
		if err := unix.Lstat(d, &st); err != nil {
			if opts.Present && !opts.Watch && errors.Is(err, unix.ENOENT) {
				continue
			}
			return nil, fmt.Errorf("check state directory %q: %w", d, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) && st.Uid != 0 || st.Mode&0o022 != 0 {
			return nil, fmt.Errorf("check state directory %q: it is a %s of uid %d with mode %04o, want a directory of root or uid %d that nobody else can write: %w",
				d, hostfs.TypeName(st.Mode), st.Uid, st.Mode&0o7777, os.Geteuid(), errdefs.ErrPermissionDenied)
		}
	}
	s.masked = umask()&(containerDir|viewFile) != 0
	if err := s.chooseLocked(opts.Mode); err != nil {
		return nil, err
	}
	if opts.Watch && s.status.Mode == Mounts {
		err := s.startWatching()
		if err == nil && opts.Shared && opts.Present {
			err = s.adopt()
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// chooseLocked settles the mode while no other process mounts or unmounts.
func (s *Store) chooseLocked(want Mode) error {
	if s.opts.Present {
		return s.choose(want)
	}
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return s.choose(want)
}

// Close ends what the store watches. What it made stays for the containers that
// have it.
func (s *Store) Close() error {
	s.mu.Lock()
	watch := s.watch
	s.watch, s.closed = [2]*pathwatch.Watcher{}, true
	var errs []error
	if s.keeper >= 0 {
		errs = append(errs, unix.Close(s.keeper))
		s.keeper = -1
	}
	s.mu.Unlock()
	for _, w := range watch {
		if w != nil {
			errs = append(errs, w.Close())
		}
	}
	s.bg.Wait()
	return errors.Join(errs...)
}

// Tidy removes the mount that holds all containers' when there is no container. It
// is for the end of the last store of a state directory.
func (s *Store) Tidy() error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if s.opts.Shared && !mountRoot(s.containers()) {
		return nil
	}
	if left, err := s.Containers(); err != nil || len(left) > 0 || s.status.Mode != Mounts {
		return err
	}
	return detach(s.containers())
}

// umask is the process's file mode creation mask. The kernel tells it without
// changing it in /proc only; where that is not to be had everything is masked.
func umask() uint32 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0o777
	}
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(line, "Umask:"); ok {
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 8, 32); err == nil {
				return uint32(n)
			}
		}
	}
	return 0o777
}

func (s *Store) containers() string { return ContainersDir(s.dir) }
func (s *Store) sandboxes() string  { return SandboxesDir(s.dir) }

// ContainerDir is the path, below the state directory stateDir, that is mounted
// into a container at /var/run/jackfield.
func ContainerDir(stateDir, containerID string) string {
	return filepath.Join(ContainersDir(stateDir), containerID)
}

// Prepare makes everything c names, or nothing. It may be called again for the
// same container, which begins from nothing then.
func (s *Store) Prepare(c Container) (err error) {
	if err := c.check(); err != nil {
		return err
	}
	if err := s.begin(&c); err != nil {
		return fmt.Errorf("record container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.RemoveContainer(c.SandboxID, c.ID))
		}
	}()
	if err := s.makeSocketDirs(c.SandboxID, c.SocketDirs); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		// What is gone between the look and the mount was a socket that the host side
		// makes anew at this moment.
		if err := s.stage(&c); !errors.Is(err, unix.ENOENT) || attempt == attempts {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// attempts are made to look at a container's sockets and bind them, a millisecond
// apart.
const attempts = 5

// stage opens what the container gets, makes its directory, and binds it there.
func (s *Store) stage(c *Container) error {
	opened, err := s.openAll(c)
	if err != nil {
		return err
	}
	defer opened.close()
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.again(); err != nil {
		return err
	}
	if err := s.fill(c); err != nil {
		return fmt.Errorf("make staging of container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	if s.status.Mode != Mounts {
		return nil
	}
	if err := s.bindAll(c, opened); err != nil {
		return fmt.Errorf("make staging of container %q in state directory %q: %w", c.ID, s.dir, err)
	}
	s.hold(&record{Owner: s.opts.Owner, Container: *c})
	return s.announce(c)
}

// begin writes down what is about to be made, while nobody else changes anything.
func (s *Store) begin(c *Container) error {
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.retract(c.ID); err != nil {
		return err
	}
	return s.note(c)
}

// note writes down what is about to be made.
func (s *Store) note(c *Container) error {
	if err := unix.Mkdir(filepath.Join(s.sandboxes(), c.SandboxID), privateDir); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	r := record{Owner: s.opts.Owner, Container: *c}
	if s.opts.Shared {
		r.See = here()
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := create(s.recordFile(c.SandboxID, c.ID), data, 0o600); err != nil {
		return err
	}
	return s.noteBundle(c)
}

// fill makes the container's directory with the directories and files in it.
func (s *Store) fill(c *Container) error {
	dir := filepath.Join(s.containers(), c.ID)
	fresh, err := s.mkdir(dir)
	if err != nil {
		return err
	}
	if !fresh && s.status.Mode == Mounts {
		if err := s.unmountAll(c); err != nil {
			return err
		}
	}
	for _, d := range c.Dirs {
		if err := s.mkdirs(dir, d.Path); err != nil {
			return err
		}
	}
	for _, f := range c.Files {
		// Nobody reads in a directory that was made a moment ago.
		write := s.replace
		if fresh {
			write = s.write
		}
		if err := write(dir, f.Name, f.Data); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) mkdirs(base, rel string) error {
	for elem := range strings.SplitSeq(rel, "/") {
		base = filepath.Join(base, elem)
		if _, err := s.mkdir(base); err != nil {
			return err
		}
	}
	return nil
}

// mkdir makes a directory that a container sees, whatever the umask, and says
// whether it was missing.
func (s *Store) mkdir(dir string) (fresh bool, err error) {
	if err := unix.Mkdir(dir, containerDir); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return false, nil
		}
		return false, &os.PathError{Op: "mkdir", Path: dir, Err: err}
	}
	if s.masked {
		return true, os.Chmod(dir, containerDir)
	}
	return true, nil
}

// write writes a file that is not there yet.
func (s *Store) write(dir, name string, data []byte) error {
	file := filepath.Join(dir, name)
	if err := create(file, data, viewFile); err != nil {
		return err
	}
	if s.masked {
		return os.Chmod(file, viewFile)
	}
	return nil
}

// create is os.WriteFile without the look at whether the file can be polled, and
// without following a symlink.
func create(file string, data []byte, mode uint32) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err != nil {
		return &os.PathError{Op: "open", Path: file, Err: err}
	}
	for len(data) > 0 && err == nil {
		var n int
		if n, err = unix.Write(fd, data); n > 0 {
			data = data[n:]
		}
		if errors.Is(err, unix.EINTR) {
			err = nil
		}
	}
	if err := errors.Join(err, unix.Close(fd)); err != nil {
		return &os.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}

// replace writes a file so that a reader sees the old or the new content.
func (s *Store) replace(dir, name string, data []byte) error {
	tmp := "." + name + ".new"
	err := s.write(dir, tmp, data)
	if err == nil {
		err = os.Rename(filepath.Join(dir, tmp), filepath.Join(dir, name))
	}
	if err != nil {
		os.Remove(filepath.Join(dir, tmp))
	}
	return err
}

// Containers lists the containers that have staging, sorted.
func (s *Store) Containers() ([]string, error) { return readNames(s.containers()) }

func readNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, nil
}
