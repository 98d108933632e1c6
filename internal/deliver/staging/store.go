// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
	"github.com/jackfield/jackfield/internal/host/watch"
)

// Any user in a container can read what is mounted into it. Other users of the host cannot
// enter the directories above it.
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
	dirs    *sockdir.Dirs
	rights  *sockaccess.Rights

	mu           sync.Mutex // guards what follows, and every mount
	tracked      map[string]*record
	sockets      map[string]*hostSocket  // by the socket's host path
	watchers     map[bool]*watch.Watcher // by whether tenants can write the directories
	closed       bool
	rebinderLock int // descriptor of the lock that makes this process the rebinder, or -1
	daemonLock   int // descriptor of the lock of Options.Exclusive, or -1
	bg           sync.WaitGroup
}

// Options change how a Store works. The zero value is for a short-lived process that stages or
// removes a container.
type Options struct {
	// Mode is the wanted mode; "" is ModeAuto.
	Mode Mode
	// Owner is recorded with each container. Retain removes only this owner's containers. It
	// is "" for the NRI plugin, whose state directory is the node's. The state directory of
	// every other owner lies in that of the node, where all owners share the claims.
	Owner string
	// Watch rebinds a socket when the vswitch re-creates it.
	Watch bool
	// Events, when not nil, receives what the store does in the background.
	Events Events
	// Shared is for a state directory that many short-lived processes use, and that one
	// long-lived process watches.
	Shared bool
	// DirectorySize limits each directory that is created for an application's sockets, in
	// bytes, where mounts reach the host. 0 leaves them plain directories.
	DirectorySize uint64
	// NoCreate is for a process that watches or removes what other processes staged. With
	// Watch it tracks their containers; without, it creates nothing.
	NoCreate bool
	// Exclusive is for the node's daemon: Open fails with errdefs.ErrConflict while another process
	// has the state directory open with it.
	Exclusive bool
}

// Events receives what a store does in the background. Each watcher calls its methods one at
// a time. They must not block for long and must not call the store.
type Events interface {
	// Rebound reports that a vswitch re-created a socket and that it was rebound.
	Rebound(Rebound)
	// Failed reports an error of a socket, or of none. The store tries again when the socket is created the
	// next time. If a tenant can write a directory on the way to the socket, it can cause any number of errors.
	Failed(socket string, tenant bool, err error)
}

// Open prepares the state directory. It is created with its parents, mode 0755 whatever the
// umask. A state directory that another user owns or can write is errdefs.ErrPermissionDenied.
func Open(host hostfs.Root, dir string, opts Options) (*Store, error) {
	s := &Store{host: host, hostDir: dir, dir: host.Path(dir), opts: opts, dirs: openDirs(host, dir, opts.Owner), rights: openRights(host, nodeDir(dir, opts.Owner)),
		rebinderLock: -1, daemonLock: -1, tracked: make(map[string]*record), sockets: make(map[string]*hostSocket), watchers: make(map[bool]*watch.Watcher)}
	if err := s.prepareStateDir(); err != nil {
		return nil, err
	}
	if err := s.lockAsDaemon(); err != nil {
		return nil, err
	}
	if opts.NoCreate {
		s.status = Status{Mode: ModeMount}
	} else if err := s.locked(s.chooseMode); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if opts.Watch && s.status.Mode == ModeMount {
		err := s.startWatchers()
		if err == nil && opts.Shared && opts.NoCreate {
			err = s.watchReadyDir()
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// prepareStateDir creates the store's directories, unless the store creates nothing, and checks them.
func (s *Store) prepareStateDir() error {
	creates := !s.opts.NoCreate || s.opts.Watch
	if _, err := os.Lstat(s.dir); creates && errors.Is(err, fs.ErrNotExist) {
		// Vswitches of other users have sockets below the same parents.
		parent, err := s.host.MakeDir(s.hostDir, 0o755)
		if err != nil {
			return creationError(s.hostDir, err)
		}
		parent.Close()
	}
	owned := []string{s.dir, s.containersDir(), s.sandboxesDir(), s.host.Path(sockdir.ClaimsDir(nodeDir(s.hostDir, s.opts.Owner)))}
	if s.opts.Shared {
		owned = append(owned, s.readyDir())
	}
	for _, d := range owned {
		if creates {
			if err := unix.Mkdir(d, privateDir); err != nil && !errors.Is(err, unix.EEXIST) {
				return creationError(d, err)
			}
		}
		if err := checkStateDir(d); err != nil && (creates || !errors.Is(err, unix.ENOENT)) {
			return err
		}
	}
	return nil
}

func creationError(dir string, err error) error {
	return fmt.Errorf("create state directory %q: %w; create it (owner root, mode 0755), or set another stateDir", dir, err)
}

// checkStateDir refuses a path that is not a directory, and a directory that another user owns or can write.
func checkStateDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("check state directory %q: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf("state directory %q is a %s: it must be a directory; remove it, or set another stateDir", dir, hostfs.TypeName(st.Mode)))
	}
	if fault := trust.Check(dir, &st, trust.Options{}); fault != nil {
		return fmt.Errorf("check state directory %w", fault)
	}
	return nil
}

// Close ends the watches. What was staged stays for the containers that have it.
func (s *Store) Close() error {
	s.mu.Lock()
	watchers := s.watchers
	s.watchers, s.closed = nil, true
	var errs []error
	if s.rebinderLock >= 0 {
		errs = append(errs, unix.Close(s.rebinderLock))
		s.rebinderLock = -1
	}
	if s.daemonLock >= 0 {
		errs = append(errs, unix.Close(s.daemonLock))
		s.daemonLock = -1
	}
	s.mu.Unlock()
	for _, w := range watchers {
		errs = append(errs, w.Close())
	}
	s.bg.Wait()
	return errors.Join(errs...)
}

// UnmountIfEmpty removes the shared mount of the state directory when no container is staged.
// It is for the last store of a state directory.
func (s *Store) UnmountIfEmpty() error {
	return s.locked(func() error {
		if s.opts.Shared && !isMountRoot(s.containersDir()) {
			return nil
		}
		if left, err := s.Containers(); err != nil || len(left) > 0 || s.status.Mode != ModeMount {
			return err
		}
		return unmountStack(s.containersDir())
	})
}

func (s *Store) containersDir() string { return edit.ContainersDir(s.dir) }
func (s *Store) sandboxesDir() string  { return SandboxesDir(s.dir) }

// Containers lists the staged containers, sorted.
func (s *Store) Containers() ([]string, error) { return listNames(s.containersDir()) }

// listNames returns the names in a directory, sorted. A missing directory has none.
func listNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}
