// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/jsonstore"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// ClaimsDir returns the host path of the claims in a node's state directory.
func ClaimsDir(stateDir string) string { return filepath.Join(stateDir, "claims") }

// Dirs is the directories below the socket roots of one node. It is safe for use by many processes.
type Dirs struct {
	host   hostfs.Root
	claims store
}

// New returns the directories whose claims are at a host path. The first claim creates the directory of claims.
func New(host hostfs.Root, claimsDir string) *Dirs {
	return &Dirs{host: host, claims: store{own: trust.NewOwnDir(host, claimsDir), dir: host.Path(claimsDir)}}
}

// Claim claims a directory for a sandbox. fresh means that this adapter had not claimed it for the sandbox before.
// creates means that the caller is about to create the directory. It is errdefs.ErrConflict if another sandbox has
// claimed the directory, or a directory above or below it, or holds a socket of the host in it.
func (d *Dirs) Claim(dir string, h Holder, creates bool) (fresh bool, err error) {
	_, fresh, err = d.claim(dir, h, creates)
	return fresh, err
}

// claim adds a holder to the claim of a directory. creates marks the holder as the creator of the directory before it
// exists, so that a crash leaves a record of it. fresh reports that the holder is new.
func (d *Dirs) claim(dir string, h Holder, creates bool) (c claim, fresh bool, err error) {
	open, err := d.claims.lock(true)
	if err != nil {
		return c, false, err
	}
	defer open.Close()
	if err := open.checkConflict(dir, h); err != nil {
		return c, false, err
	}
	name := nameOfDirectory(dir)
	if c, err = open.read(name); err != nil || slices.Contains(c.Holders, h) {
		return c, false, err
	}
	c.Holders = append(c.Holders, h)
	if creates && c.Creator == nil {
		c.creation = creation{Creator: &h, Pending: true}
	}
	return c, true, open.write(name, &c)
}

// checkConflict returns errdefs.ErrConflict if another sandbox excludes a holder from a directory.
func (s *openStore) checkConflict(dir string, h Holder) error {
	names, err := s.list()
	if err != nil {
		return err
	}
	for _, name := range names {
		path, isSocket := pathOfFile(name)
		if !within(dir, path) && (isSocket || !within(path, dir)) {
			continue
		}
		c, err := s.read(name)
		if err != nil {
			return err
		}
		other := c.otherHolder(h.Sandbox)
		switch {
		case other != nil && isSocket:
			return errdefs.ErrConflict.WithMessage(fmt.Sprintf(
				"directory %q has socket %q in it, which sandbox %s holds, by %s; give the attachment a directory of its own",
				dir, path, other.Sandbox, other.Adapter))
		case other != nil:
			return errdefs.ErrConflict.WithMessage(fmt.Sprintf(
				"directory %q belongs to sandbox %s, by %s; two pods cannot share one, give each attachment its own",
				path, other.Sandbox, other.Adapter))
		}
	}
	return nil
}

// setCreation records which directories a holder has created, or is about to create.
func (d *Dirs) setCreation(dir string, made creation) error {
	open, err := d.claims.lock(false)
	if err != nil {
		return err
	}
	defer open.Close()
	c, err := open.read(nameOfDirectory(dir))
	if err != nil {
		return err
	}
	if len(c.Holders) == 0 {
		return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("directory %q has no holder", dir))
	}
	c.creation = made
	return open.write(nameOfDirectory(dir), &c)
}

// Holders returns the holders of a directory.
func (d *Dirs) Holders(dir string) ([]Holder, error) {
	c, err := d.readClaim(dir)
	return c.Holders, err
}

// readClaim reads the claim of a directory without the lock. A directory without holders has an empty claim.
func (d *Dirs) readClaim(dir string) (claim, error) {
	open, err := d.claims.open()
	if err != nil {
		return claim{}, err
	}
	defer open.Close()
	return open.read(nameOfDirectory(dir))
}

// IsCreated reports whether an open directory is the one that was created for the sandbox at a path.
func (d *Dirs) IsCreated(dir, sandbox string, fd int) (bool, error) {
	id, err := hostfs.IDOf(fd)
	if err != nil {
		return false, err
	}
	return d.isCreatedFor(dir, sandbox, id)
}

func (d *Dirs) isCreatedFor(dir, sandbox string, id hostfs.FileID) (bool, error) {
	c, err := d.readClaim(dir)
	return err == nil && c.isCreated(id) && len(c.Holders) > 0 && c.otherHolder(sandbox) == nil, err
}

// FindState returns the relation of a sandbox to the directory at a path below a canonical socket root.
func (d *Dirs) FindState(sandbox, root, rel string) (edit.DirState, error) {
	fd, err := OpenBelowRoot(d.host, root, rel, unix.O_PATH|unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) {
		_, err = d.host.StatNoSymlinks(root) // without its root, it cannot be created
		return edit.MissingDir, err
	}
	if err != nil {
		return edit.ForeignDir, err
	}
	defer unix.Close(fd)
	if own, err := d.IsCreated(filepath.Join(root, rel), sandbox, fd); err != nil || !own {
		return edit.ForeignDir, err
	}
	return edit.OwnDir, nil
}

// OpenBelowRoot opens a path below a canonical socket root. It follows no symlink.
func OpenBelowRoot(host hostfs.Root, root, rel string, flags int) (int, error) {
	path := filepath.Join(root, rel)
	if !filepath.IsLocal(rel) {
		return -1, errdefs.ErrPermissionDenied.WithMessage(fmt.Sprintf("open %q: it is not below %q", path, root))
	}
	return host.OpenNoSymlinks(path, flags)
}

// HoldSockets records that a sandbox has sockets of the host. A socket below a directory that another sandbox has
// claimed is errdefs.ErrConflict. The error is about the first socket that is not held; held is how many before it
// are.
func (d *Dirs) HoldSockets(sockets []string, h Holder) (held int, err error) {
	open, err := d.claims.lock(true)
	if err != nil {
		return 0, err
	}
	defer open.Close()
	for i, socket := range sockets {
		name := nameOfSocket(socket)
		c, err := open.read(name)
		if err != nil {
			return i, err
		}
		if slices.Contains(c.Holders, h) {
			continue // nobody else has claimed a directory above it since: Claim refuses that
		}
		if err := open.claimants(socket).Check(h.Sandbox); err != nil {
			return i, err
		}
		c.Holders = append(c.Holders, h)
		if err := open.write(name, &c); err != nil {
			return i, err
		}
	}
	return len(sockets), nil
}

// Claimants returns the claims of the directories that a socket lies in.
func (d *Dirs) Claimants(socket string) Claimants {
	open, err := d.claims.open()
	if err != nil {
		return Claimants{socket: socket, err: err}
	}
	defer open.Close()
	return open.claimants(socket)
}

// ReleaseDirectory removes a holder's claim of one directory. No claim is no error.
func (d *Dirs) ReleaseDirectory(dir string, h Holder) error {
	return d.release([]string{nameOfDirectory(dir)}, func(_ bool, have Holder) bool { return have == h })
}

// ReleaseSockets removes a holder's holds of sockets, and reports whether it still claims directories.
func (d *Dirs) ReleaseSockets(h Holder) (directories bool, err error) {
	err = d.release(nil, func(isSocket bool, have Holder) bool {
		directories = directories || have == h && !isSocket
		return have == h && isSocket
	})
	return directories, err
}

// Release removes all claims and holds of the holders for which isGone is true, and the files that killed processes
// have not finished. Their directories stay.
func (d *Dirs) Release(isGone func(Holder) bool) error {
	return d.release(nil, func(_ bool, have Holder) bool { return isGone(have) })
}

// release removes holders from the claims of these names, or from all claims for nil.
func (d *Dirs) release(names []string, isGone func(isSocket bool, h Holder) bool) error {
	open, err := d.claims.lock(false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer open.Close()
	var errs []error
	if names == nil {
		if names, err = open.list(); err != nil {
			return err
		}
		errs = append(errs, hostfs.RemoveUnfinished(d.claims.dir))
	}
	for _, name := range names {
		_, isSocket := pathOfFile(name)
		errs = append(errs, open.release(name, func(h Holder) bool { return isGone(isSocket, h) }))
	}
	return errors.Join(errs...)
}

// Remove removes a directory that a holder created in an open parent, and then its claim. If a killed process did not
// record the directory that it created, only an empty directory is removed. A directory that another sandbox has
// claimed stays. A nil parent is a missing one.
func (d *Dirs) Remove(parent *os.File, dir string, h Holder) error {
	c, err := d.readClaim(dir)
	if err != nil || c.otherHolder(h.Sandbox) != nil {
		return err
	}
	if parent != nil && (c.Creator == nil || c.isCreatedBy(h)) {
		if err := removeAt(int(parent.Fd()), filepath.Base(dir), &c.creation, false); err != nil {
			return err
		}
	}
	return d.ReleaseDirectory(dir, h)
}

// RemoveAll removes the directories that a holder created, with their content, and then its claims and holds. It
// keeps these while a directory cannot be removed, because the next attempt needs the identities in them. lost
// reports damaged claims, which are removed: a second attempt would not learn more.
func (d *Dirs) RemoveAll(h Holder) (lost, err error) {
	held, damaged, err := d.listHeld(h)
	if err != nil {
		return nil, err
	}
	names := damaged
	for _, c := range held {
		names = append(names, c.name)
	}
	for _, name := range damaged {
		lost = errors.Join(lost, errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf(
			"claim %q is damaged: a directory that was created for sockets remains", filepath.Join(d.claims.dir, name))))
	}
	if len(names) == 0 {
		return nil, nil
	}
	if err := d.removeCreated(held, h); err != nil {
		return lost, err
	}
	return lost, d.release(names, func(_ bool, have Holder) bool { return have == h })
}

// namedClaim is a claim and the name of its file.
type namedClaim struct {
	name string
	claim
}

// listHeld returns the claims and holds of a holder, and the names of damaged claims.
func (d *Dirs) listHeld(h Holder) (held []namedClaim, damaged []string, err error) {
	open, err := d.claims.open()
	if err != nil {
		return nil, nil, err
	}
	defer open.Close()
	names, err := open.list()
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		c, err := open.readWhole(name)
		switch {
		case errors.Is(err, jsonstore.ErrDamaged):
			damaged = append(damaged, name)
		case err != nil:
			return nil, nil, err
		case slices.Contains(c.Holders, h):
			held = append(held, namedClaim{name, c})
		}
	}
	return held, damaged, nil
}

// removeCreated removes the directories that a holder created, and then their parents, the deepest first.
func (d *Dirs) removeCreated(held []namedClaim, h Holder) error {
	var errs []error
	var parents []parentDir
	for _, c := range held {
		if !c.isCreatedBy(h) {
			continue
		}
		if dir, _ := pathOfFile(c.name); c.Pending || c.Created != nil {
			errs = append(errs, d.removePath(dir, &c.creation, false))
		}
		parents = append(parents, c.Parents...)
	}
	slices.SortFunc(parents, func(a, b parentDir) int { return cmp.Compare(len(b.Path), len(a.Path)) })
	for _, p := range parents {
		errs = append(errs, d.removePath(p.Path, &creation{Created: p.Identity}, true))
	}
	return errors.Join(errs...)
}

// removePath removes a created directory by its path. A missing parent, and a symlink on the path, is no error.
func (d *Dirs) removePath(dir string, made *creation, onlyEmpty bool) error {
	parent, err := d.host.OpenNoSymlinks(filepath.Dir(dir), unix.O_RDONLY|unix.O_DIRECTORY)
	if isAbsent(err) {
		return nil
	}
	if err == nil {
		defer unix.Close(parent)
		err = removeAt(parent, filepath.Base(dir), made, onlyEmpty)
	}
	if err != nil {
		return fmt.Errorf("remove directory %q: %w", dir, err)
	}
	return nil
}

// isAbsent reports whether an error means that there is no directory at a path, or a symlink on the path.
func isAbsent(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) }
