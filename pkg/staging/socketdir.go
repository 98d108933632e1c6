// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// made is one directory that was made, as a sandbox's record has it.
type made struct {
	Root   string `json:"root"`
	Rel    string `json:"rel"`
	Parent bool   `json:"parent,omitempty"` // on the way to a socket directory: removed only when it is empty
}

const madeFile = "socket-dirs.json"

func (s *Store) claims() string { return filepath.Join(s.dir, "claims") }

// makeSocketDirs claims the directories for the sandbox and makes what is
// missing. Each is written down in the sandbox's record first.
func (s *Store) makeSocketDirs(sandboxID string, dirs []SocketDir) error {
	for _, d := range dirs {
		if err := s.makeSocketDir(sandboxID, d); err != nil {
			return asked(d.From, fmt.Errorf("make socket directory %q: %w", filepath.Join(d.Root, d.Rel), err))
		}
	}
	return nil
}

func (s *Store) makeSocketDir(sandboxID string, d SocketDir) error {
	rel := filepath.Clean(d.Rel)
	if rel == "." || rel == ".." || strings.HasPrefix(rel, "../") || filepath.IsAbs(rel) {
		return fmt.Errorf("%q is not below %q: %w", d.Rel, d.Root, errdefs.ErrInvalidArgument)
	}
	if err := s.claim(sandboxID, filepath.Join(d.Root, rel)); err != nil {
		return err
	}
	f, err := s.host.Open(d.Root, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	open := []int{}
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
		f.Close()
	}()
	at, walked, fresh := int(f.Fd()), "", false
	for elem := range strings.SplitSeq(rel, "/") {
		walked = filepath.Join(walked, elem)
		next, err := hostfs.OpenatBeneath(at, elem, unix.O_RDONLY|unix.O_DIRECTORY)
		if errdefs.IsNotFound(err) {
			if err := s.record(sandboxID, made{Root: d.Root, Rel: walked, Parent: walked != rel}); err != nil {
				return err
			}
			next, err = mkdirat(at, elem, d)
			fresh = true
		}
		if err != nil {
			return err
		}
		open = append(open, next)
		at = next
	}
	if fresh {
		return nil
	}
	return s.letMake(sandboxID, d, rel, at)
}

// letMake lets the container's user make sockets in a directory that was there: of
// the sandbox alone, which whoever made it removes with the sandbox, so that nobody
// later inherits the right. Another's stays as it is.
func (s *Store) letMake(sandboxID string, d SocketDir, rel string, fd int) error {
	if d.UID <= 0 || d.GID < 0 || d.Way == "" {
		return nil
	}
	if !namedAfter(rel, sandboxID) {
		list, err := readMade(filepath.Join(s.sandboxes(), sandboxID))
		if err != nil || !slices.Contains(list, made{Root: d.Root, Rel: rel}) {
			return err
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return os.NewSyscallError("fstat", err)
	}
	a := Access{Way: d.Way, User: &User{UID: uint32(d.UID), GID: uint32(d.GID)}}
	return a.let(fd, &st, "directory", toMake)
}

// namedAfter reports whether a path below a socket root has an element that begins
// with the sandbox's ID, or with its first twelve characters and "-": so do
// jackfield-cni and others name the directories that they make for an attachment.
func namedAfter(rel, sandboxID string) bool {
	const short = 12
	if len(sandboxID) < short {
		return false
	}
	for elem := range strings.SplitSeq(rel, "/") {
		if rest, ok := strings.CutPrefix(elem, sandboxID[:short]); ok && (rest == "" || rest[0] == '-' || strings.HasPrefix(elem, sandboxID)) {
			return true
		}
	}
	return false
}

func mkdirat(dirfd int, name string, d SocketDir) (int, error) {
	if err := unix.Mkdirat(dirfd, name, containerDir); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	fd, err := hostfs.OpenatBeneath(dirfd, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	if err := errors.Join(unix.Fchmod(fd, containerDir), chown(fd, d)); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

func chown(fd int, d SocketDir) error {
	if d.UID < 0 && d.GID < 0 {
		return nil
	}
	return unix.Fchown(fd, d.UID, d.GID)
}

// claim notes that a directory belongs to a sandbox. A claim of a sandbox that
// has no record any more is void.
func (s *Store) claim(sandboxID, dir string) error {
	taken, err := readNames(s.claims())
	if err != nil {
		return err
	}
	for _, name := range taken {
		other := unescape(name)
		if other != dir && !strings.HasPrefix(other, dir+"/") && !strings.HasPrefix(dir, other+"/") {
			continue
		}
		owner, err := os.ReadFile(filepath.Join(s.claims(), name))
		if err != nil || string(owner) == sandboxID {
			continue
		}
		if !s.hasSandbox(string(owner)) {
			continue
		}
		return fmt.Errorf("directory %q belongs to sandbox %s; two pods cannot share one, give each attachment its own: %w",
			other, owner, errdefs.ErrConflict)
	}
	return s.replace(s.claims(), escape(dir), []byte(sandboxID))
}

// record adds a directory to what the sandbox's end removes.
func (s *Store) record(sandboxID string, m made) error {
	sandbox := filepath.Join(s.sandboxes(), sandboxID)
	list, err := readMade(sandbox)
	if err != nil || slices.Contains(list, m) {
		return err
	}
	data, err := json.Marshal(append(list, m))
	if err != nil {
		return err
	}
	return s.replace(sandbox, madeFile, data)
}

// removeSocketDirs removes what makeSocketDirs made, the deepest first, with the
// sockets that applications left in it, and the sandbox's claims. os.Root
// follows no link out of the socket root. Of a list that is none, which a disk lost,
// lost tells: whoever asks again would not learn more of what was made.
func (s *Store) removeSocketDirs(sandboxID string) (lost, err error) {
	list, err := readMade(filepath.Join(s.sandboxes(), sandboxID))
	if errdefs.IsInvalidArgument(err) {
		lost = fmt.Errorf("%w: what was made for sockets below the socket roots is left", err)
	} else if err != nil {
		return nil, err
	}
	var errs []error
	for _, m := range slices.Backward(list) {
		root, err := os.OpenRoot(s.host.Path(m.Root))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if m.Parent {
			err = root.Remove(m.Rel)
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EBUSY) {
				err = nil
			}
		} else {
			err = root.RemoveAll(m.Rel)
		}
		errs = append(errs, err, root.Close())
	}
	taken, err := readNames(s.claims())
	errs = append(errs, err)
	for _, name := range taken {
		file := filepath.Join(s.claims(), name)
		if owner, err := os.ReadFile(file); err == nil && string(owner) == sandboxID {
			errs = append(errs, os.Remove(file))
		}
	}
	return lost, errors.Join(errs...)
}

func readMade(sandbox string) ([]made, error) {
	data, err := os.ReadFile(filepath.Join(sandbox, madeFile))
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	list, err := decodeMade(data)
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", filepath.Join(sandbox, madeFile), err)
	}
	return list, nil
}

func decodeMade(data []byte) ([]made, error) {
	var list []made
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	for i, m := range list {
		if err := hostfs.CheckPath(m.Root); err != nil {
			return nil, fmt.Errorf("[%d].root: %w", i, err)
		}
		if !local(m.Rel) {
			return nil, fmt.Errorf("[%d].rel: found %q, want a path below root: %w", i, m.Rel, errdefs.ErrInvalidArgument)
		}
	}
	return list, nil
}

// escape makes a path one file name; unescape undoes it.
func escape(p string) string {
	return strings.NewReplacer("%", "%25", "/", "%2F").Replace(p)
}

func unescape(name string) string {
	return strings.NewReplacer("%2F", "/", "%25", "%").Replace(name)
}
