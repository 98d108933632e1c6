// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/jsonstore"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// store is the directory of claims.
type store struct {
	own *trust.OwnDir
	dir string // as a path of this process
}

// open opens the directory. A missing one is no error.
func (s *store) open() (*openStore, error) {
	f, err := s.own.Open()
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read holders of socket directories %q: %w", s.dir, err)
	}
	return newOpenStore(f, s.dir), nil
}

// lock opens the directory and locks the claims for this caller, until it closes the directory. Without create, a
// missing directory is unix.ENOENT.
func (s *store) lock(create bool) (*openStore, error) {
	f, err := s.own.Open()
	if errors.Is(err, unix.ENOENT) && create {
		f, err = s.own.Make(0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("lock holders of socket directories %q: %w", s.dir, err)
	}
	if err := hostfs.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock holders of socket directories %q: %w", s.dir, os.NewSyscallError("flock", err))
	}
	return newOpenStore(f, s.dir), nil
}

// openStore is the directory of claims, open and checked: nobody else can write claims in it. A nil openStore is a
// missing directory, which has no claims.
type openStore struct {
	jsonstore.Store[claim]
	file *os.File
	dir  string // as a path of this process
}

func newOpenStore(f *os.File, dir string) *openStore {
	return &openStore{Store: claimsIn(hostfs.DescriptorPath(int(f.Fd()))), file: f, dir: dir}
}

// claimsIn returns the claims in a directory.
func claimsIn(dir string) jsonstore.Store[claim] {
	// The limit is for a socket that all pods of a node share: it has as many holders.
	return jsonstore.Store[claim]{Dir: dir, MaxSize: 4 << 20, Check: checkClaim}
}

// Close closes the directory, which unlocks the claims.
func (s *openStore) Close() error {
	if s == nil {
		return nil
	}
	return s.file.Close()
}

// list lists the names of the claims.
func (s *openStore) list() ([]string, error) {
	if s == nil {
		return nil, nil
	}
	names, err := s.Files()
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		path, _ := pathOfFile(name)
		return !filepath.IsAbs(path)
	}), nil
}

// read reads a claim. A missing claim, and a damaged one, has no holders.
func (s *openStore) read(name string) (claim, error) {
	c, err := s.readWhole(name)
	if errors.Is(err, jsonstore.ErrDamaged) {
		return claim{}, nil
	}
	return c, err
}

// readWhole is like read, but returns [jsonstore.ErrDamaged] for a damaged claim.
func (s *openStore) readWhole(name string) (claim, error) {
	if s == nil {
		return claim{}, nil
	}
	c, err := s.ReadAt(int(s.file.Fd()), name)
	if err != nil {
		return claim{}, fmt.Errorf("read holder: %w", &os.PathError{Op: "read", Path: s.path(name), Err: err})
	}
	if c == nil {
		return claim{}, nil
	}
	return *c, nil
}

// write replaces a claim atomically. The lock is held.
func (s *openStore) write(name string, c *claim) error {
	if err := s.Store.Write(name, c); err != nil {
		return fmt.Errorf("write holder %q: %w", s.path(name), err)
	}
	return nil
}

// release removes the holders of a claim for which isGone is true, and with the last holder the claim. A damaged claim
// has no holders. The lock is held.
func (s *openStore) release(name string, isGone func(Holder) bool) error {
	c, err := s.read(name)
	if err != nil {
		return err
	}
	before := len(c.Holders)
	c.Holders = slices.DeleteFunc(c.Holders, isGone)
	switch {
	case len(c.Holders) == 0:
		err = s.Remove(name)
	case len(c.Holders) < before:
		err = s.write(name, &c)
	}
	if err != nil {
		return fmt.Errorf("remove holder %q: %w", s.path(name), err)
	}
	return nil
}

// path returns the path of a claim.
func (s *openStore) path(name string) string { return filepath.Join(s.dir, name) }

// claimants returns the claims of the directories that a socket lies in.
func (s *openStore) claimants(socket string) Claimants {
	all := Claimants{socket: socket}
	for dir := filepath.Dir(socket); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		c, err := s.read(nameOfDirectory(dir))
		if err != nil {
			all.err = err
		}
		if len(c.Holders) > 0 {
			all.claims = append(all.claims, heldDirectory{dir, c})
		}
	}
	return all
}

const socketPrefix = "="

func nameOfDirectory(dir string) string { return escape(filepath.Clean(dir)) }

func nameOfSocket(socket string) string { return socketPrefix + escape(filepath.Clean(socket)) }

// pathOfFile returns the path of the directory or socket of a claim.
func pathOfFile(name string) (path string, isSocket bool) {
	rest, isSocket := strings.CutPrefix(name, socketPrefix)
	return unescape(rest), isSocket
}

// within reports whether path is dir or lies below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// isClean reports whether a path is absolute and has no "..", "." or empty element.
func isClean(path string) bool { return filepath.IsAbs(path) && filepath.Clean(path) == path }

// escape makes a path one file name; unescape undoes it.
var escape, unescape = strings.NewReplacer("%", "%25", "/", "%2F").Replace,
	strings.NewReplacer("%2F", "/", "%25", "%").Replace
