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

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Directory modes: what a container is handed can be read by any user in it;
// the directories above it are not for other users of the host.
const (
	privateDir   = 0o700
	containerDir = 0o755
	viewFile     = 0o644
)

// Store is the state directory. It is safe for concurrent use by handlers that
// work on different containers.
type Store struct {
	host hostfs.Root
	dir  string
	// masked says that the process's umask takes something from the modes above,
	// so that each has to be set again.
	masked bool
}

// Container is what one container needs on the host.
type Container struct {
	ID, SandboxID string
	Files         []File      // in the staging directory
	MountPoints   []string    // directories in the staging directory that mounts need
	SocketDirs    []SocketDir // directories in which the application makes its sockets
}

// File is a file of the staging directory, name and content.
type File struct {
	Name string
	Data []byte
}

// Open makes the state directory ready. Its parent directories are made 0755;
// a state directory that another user owns or may write to is
// errdefs.ErrPermissionDenied.
func Open(host hostfs.Root, dir string) (*Store, error) {
	s := &Store{host: host, dir: host.Path(dir)}
	own := []string{s.containers(), s.sandboxes(), s.claims()}
	for _, d := range own {
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
			return nil, fmt.Errorf("check state directory %q: %w", d, err)
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) && st.Uid != 0 || st.Mode&0o022 != 0 {
			return nil, fmt.Errorf("check state directory %q: it is a %s of uid %d with mode %04o, want a directory of root or uid %d that nobody else can write: %w",
				d, hostfs.TypeName(st.Mode), st.Uid, st.Mode&0o7777, os.Geteuid(), errdefs.ErrPermissionDenied)
		}
	}
	s.masked = umask()&(containerDir|viewFile) != 0
	return s, nil
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

func (s *Store) containers() string { return filepath.Join(s.dir, "containers") }
func (s *Store) sandboxes() string  { return filepath.Join(s.dir, "sandboxes") }

// ContainerDir is the path, below the state directory stateDir, that is mounted
// into a container at /var/run/jackfield.
func ContainerDir(stateDir, containerID string) string {
	return filepath.Join(stateDir, "containers", containerID)
}

// Prepare makes everything c names, or nothing. It may be called again for the
// same container.
func (s *Store) Prepare(c Container) (err error) {
	if err := errors.Join(checkID("container", c.ID), checkID("sandbox", c.SandboxID)); err != nil {
		return err
	}
	sandbox := filepath.Join(s.sandboxes(), c.SandboxID)
	if err := unix.Mkdir(sandbox, privateDir); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("record container %q: %w", c.ID, err)
	}
	if err := create(filepath.Join(sandbox, c.ID+containerSuffix), nil, 0o600); err != nil {
		return fmt.Errorf("record container %q: %w", c.ID, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.RemoveContainer(c.SandboxID, c.ID))
		}
	}()
	if err := s.makeSocketDirs(c.SandboxID, c.SocketDirs); err != nil {
		return err
	}
	return s.fill(c)
}

func (s *Store) fill(c Container) error {
	dir := filepath.Join(s.containers(), c.ID)
	fresh, err := s.mkdir(dir)
	if err != nil {
		return fmt.Errorf("make staging of container %q: %w", c.ID, err)
	}
	for _, p := range c.MountPoints {
		at := dir
		for _, elem := range strings.Split(p, "/") {
			if elem == "" || elem == "." || elem == ".." {
				return fmt.Errorf("make staging of container %q: mount point %q: %w", c.ID, p, errdefs.ErrInvalidArgument)
			}
			at = filepath.Join(at, elem)
			if _, err := s.mkdir(at); err != nil {
				return fmt.Errorf("make staging of container %q: %w", c.ID, err)
			}
		}
	}
	for _, f := range c.Files {
		if f.Name == "" || f.Name[0] == '.' || strings.ContainsRune(f.Name, '/') {
			return fmt.Errorf("make staging of container %q: file name %q: %w", c.ID, f.Name, errdefs.ErrInvalidArgument)
		}
		// Nobody reads in a directory that was made a moment ago.
		write := s.replace
		if fresh {
			write = s.write
		}
		if err := write(dir, f.Name, f.Data); err != nil {
			return fmt.Errorf("make staging of container %q: %w", c.ID, err)
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

// RemoveContainer removes a container's staging. The sandbox's socket
// directories stay. A container that is not known is no error.
func (s *Store) RemoveContainer(sandboxID, containerID string) error {
	if err := errors.Join(checkID("container", containerID), checkID("sandbox", sandboxID)); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(s.containers(), containerID)); err != nil {
		return fmt.Errorf("remove staging of container %q: %w", containerID, err)
	}
	sandbox := filepath.Join(s.sandboxes(), sandboxID)
	if err := os.Remove(filepath.Join(sandbox, containerID+containerSuffix)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove staging of container %q: %w", containerID, err)
	}
	// Goes only when nothing is recorded in it any more.
	if err := os.Remove(sandbox); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTEMPTY) {
		return fmt.Errorf("remove record of sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// RemoveSandbox removes the staging of all of a sandbox's containers and the
// socket directories that were made for it. An unknown sandbox is no error.
func (s *Store) RemoveSandbox(sandboxID string) error {
	if err := checkID("sandbox", sandboxID); err != nil {
		return err
	}
	sandbox := filepath.Join(s.sandboxes(), sandboxID)
	names, err := readNames(sandbox)
	if err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	var errs []error
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, containerSuffix); ok {
			errs = append(errs, os.RemoveAll(filepath.Join(s.containers(), id)))
		}
	}
	errs = append(errs, s.removeSocketDirs(sandboxID))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	if err := os.RemoveAll(sandbox); err != nil {
		return fmt.Errorf("remove sandbox %q: %w", sandboxID, err)
	}
	return nil
}

// Retain removes every sandbox for which alive is false, every container of the
// others for which it is false, and staging that no record tells of. It is for
// the start, when the runtime has said what lives.
func (s *Store) Retain(aliveSandbox, aliveContainer func(id string) bool) error {
	sandboxes, err := readNames(s.sandboxes())
	if err != nil {
		return err
	}
	var errs []error
	for _, sid := range sandboxes {
		if !aliveSandbox(sid) {
			errs = append(errs, s.RemoveSandbox(sid))
			continue
		}
		names, err := readNames(filepath.Join(s.sandboxes(), sid))
		errs = append(errs, err)
		for _, name := range names {
			if cid, ok := strings.CutSuffix(name, containerSuffix); ok && !aliveContainer(cid) {
				errs = append(errs, s.RemoveContainer(sid, cid))
			}
		}
	}
	containers, err := readNames(s.containers())
	errs = append(errs, err)
	for _, cid := range containers {
		if !aliveContainer(cid) {
			errs = append(errs, os.RemoveAll(filepath.Join(s.containers(), cid)))
		}
	}
	return errors.Join(errs...)
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

const containerSuffix = ".container"

// checkID refuses an ID that could leave its directory.
func checkID(what, id string) error {
	ok := id != "" && len(id) <= 128 && id[0] != '.' && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
	})
	if ok {
		return nil
	}
	return fmt.Errorf("%s ID %q: want 1 to 128 of A-Z a-z 0-9 - _ . and no dot first: %w", what, id, errdefs.ErrInvalidArgument)
}
