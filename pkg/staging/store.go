// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
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
	claims  *claims.Dir
	// masked says that the process's umask takes something from the modes above,
	// so that each has to be set again.
	masked bool

	mu      sync.Mutex // of what follows, and of every mount
	held    map[string]*record
	sources map[string]*source // by the socket's host path
	watch   [2]*pathwatch.Watcher
	// watchHush limits the lines about directories that cannot be watched.
	watchHush hush
	closed    bool
	keeper    int // the descriptor by which this process is the keeper, -1 where it is not
	bg        sync.WaitGroup
}

// Options change how a Store works. The zero value is a store of a process that
// makes or removes something and ends.
type Options struct {
	// Mode is what is wanted; "" is Auto.
	Mode Mode
	// Owner is recorded with each container. Retain removes this owner's only. It is ""
	// for the NRI plugin, whose state directory is the node's; that of any other owner
	// lies in it, as the claims do that all share.
	Owner string
	// Watch keeps sockets alive: one that the host side makes anew is bound anew.
	Watch bool
	// Events, when not nil, is told what the store does by itself.
	Events Events
	// Shared is for a state directory in which processes that end make and remove
	// containers, each by itself, and one that stays watches over them.
	Shared bool
	// DirectorySize bounds each directory that is created for an application's sockets, in
	// bytes, where mounts reach the host. 0 leaves them plain directories.
	DirectorySize uint64
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

// Open makes the state directory ready. It and its parent directories are made 0755,
// whatever the umask; a state directory that another user owns or may write to is
// errdefs.ErrPermissionDenied.
func Open(host hostfs.Root, dir string, opts Options) (*Store, error) {
	claimed := claimsPath(dir, opts.Owner)
	s := &Store{host: host, hostDir: dir, dir: host.Path(dir), opts: opts, keeper: -1, held: make(map[string]*record), sources: make(map[string]*source),
		claims: claims.At(host, claimed)}
	own := []string{s.containers(), s.sandboxes(), host.Path(claimed)}
	if opts.Shared {
		own = append(own, s.ready())
	}
	for _, d := range own {
		if opts.Present && !opts.Watch {
			break
		}
		err := unix.Mkdir(d, privateDir)
		if errors.Is(err, unix.ENOENT) {
			// The sockets of vswitches that are not root's lie below the same parents.
			var parent *os.File
			if parent, err = host.MakeDir(dir, 0o755); err == nil {
				parent.Close()
				err = unix.Mkdir(d, privateDir)
			}
		}
		if err != nil && !errors.Is(err, unix.EEXIST) {
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
	if !opts.Present || opts.Watch {
		s.adoptOldClaims()
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
