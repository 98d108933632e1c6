// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

// The adapters that claim directories.
const (
	NRI    = "nri"
	Hook   = "hook"
	Inject = "inject"
	CNI    = "cni"
)

// Path returns the host path of the claims in a node's state directory.
func Path(stateDir string) string { return filepath.Join(stateDir, "claims") }

// Holder is a sandbox that has a directory or a socket, and the adapter that delivered it.
type Holder struct {
	Sandbox string `json:"sandbox"`
	Adapter string `json:"adapter"`
	// StateDir is the host path of the state directory with the adapter's record of the sandbox.
	StateDir string `json:"stateDir,omitempty"`
}

// Identity distinguishes a directory from another one that replaces it.
type Identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// IdentityOf returns the identity of an open file.
func IdentityOf(fd int) (Identity, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Identity{}, os.NewSyscallError("fstat", err)
	}
	return StatIdentity(&st), nil
}

// StatIdentity returns the identity of the file that a stat is of.
func StatIdentity(st *unix.Stat_t) Identity { return Identity{uint64(st.Dev), st.Ino} }

// Claim is the content of one claim file: who holds a directory or a socket.
type Claim struct {
	// Holders of a directory are all of one sandbox.
	Holders []Holder `json:"holders"`
	// Created identifies the directory if it was created for the sandbox.
	Created *Identity `json:"created,omitempty"`
	// Mounted identifies the root of the tmpfs that limits the directory. It is mounted on the
	// created directory.
	Mounted *Identity `json:"mounted,omitempty"`
}

// IsCreated reports whether a directory was created for the sandbox: it is the directory
// itself, or the root of the file system that is mounted on it.
func (c *Claim) IsCreated(id Identity) bool {
	return c.Created != nil && *c.Created == id || c.Mounted != nil && *c.Mounted == id
}

// otherHolder returns the first holder of another sandbox, nil for none.
func (c *Claim) otherHolder(sandbox string) *Holder {
	i := slices.IndexFunc(c.Holders, func(h Holder) bool { return h.Sandbox != sandbox })
	if i < 0 {
		return nil
	}
	return &c.Holders[i]
}

// Dir is the directory of claims of one node. It is safe for use by many processes.
type Dir struct {
	own *trust.OwnDir
	dir string // as a path of this process
}

// Open returns the claims at a host path. The directory is created by the first claim.
func Open(host hostfs.Root, path string) *Dir {
	return &Dir{own: trust.NewOwnDir(host, path), dir: host.Path(path)}
}

// openDir is the directory of claims, open and checked: nobody else can write claims in it. A nil openDir is a missing
// directory, which has no claims.
type openDir struct {
	*os.File
}

// open opens the directory. A missing one is no error.
func (d *Dir) open() (*openDir, error) {
	f, err := d.own.Open()
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read claims %q: %w", d.dir, err)
	}
	return &openDir{f}, nil
}

// lock opens the directory and locks the claims for this caller, until it closes the directory. Without create, a
// missing directory is unix.ENOENT.
func (d *Dir) lock(create bool) (*openDir, error) {
	f, err := d.own.Open()
	if errors.Is(err, unix.ENOENT) && create {
		f, err = d.own.Make(0o700)
	}
	if err != nil {
		return nil, fmt.Errorf("lock claims %q: %w", d.dir, err)
	}
	if err := hostfs.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock claims %q: %w", d.dir, os.NewSyscallError("flock", err))
	}
	return &openDir{f}, nil
}

// ClaimDirectory claims a directory for a sandbox and returns the claim. fresh means that this
// adapter had not claimed it for the sandbox before. It is errdefs.ErrConflict if another sandbox
// has claimed the directory, or a directory above or below it, or holds a socket of the host
// in it.
func (d *Dir) ClaimDirectory(dir string, h Holder) (c Claim, fresh bool, err error) {
	open, err := d.lock(true)
	if err != nil {
		return c, false, err
	}
	defer open.Close()
	names, err := open.listNames()
	if err != nil {
		return c, false, err
	}
	for _, name := range names {
		path, isSocket := pathOfFile(name)
		if !within(dir, path) && (isSocket || !within(path, dir)) {
			continue
		}
		have, err := open.readClaim(name)
		if err != nil {
			return c, false, err
		}
		if other := have.otherHolder(h.Sandbox); other != nil {
			return c, false, conflict(dir, path, isSocket, other)
		}
	}
	name := nameOfDirectory(dir)
	if c, err = open.readClaim(name); err != nil || slices.Contains(c.Holders, h) {
		return c, false, err
	}
	c.Holders = append(c.Holders, h)
	return c, true, d.writeClaim(name, c)
}

func conflict(dir, path string, isSocket bool, other *Holder) error {
	if isSocket {
		return errdefs.ErrConflict.WithMessage(fmt.Sprintf("directory %q has socket %q in it, which sandbox %s holds, by %s; give the attachment a directory of its own",
			dir, path, other.Sandbox, other.Adapter))
	}
	return errdefs.ErrConflict.WithMessage(fmt.Sprintf("directory %q belongs to sandbox %s, by %s; two pods cannot share one, give each attachment its own",
		path, other.Sandbox, other.Adapter))
}

// SetCreated records that the directory was created for the sandbox that has claimed it, and, unless
// mounted is nil, that a file system with this root is about to be mounted on it.
func (d *Dir) SetCreated(dir string, created Identity, mounted *Identity) error {
	open, err := d.lock(false)
	if err != nil {
		return err
	}
	defer open.Close()
	c, err := open.readClaim(nameOfDirectory(dir))
	if err != nil {
		return err
	}
	if len(c.Holders) == 0 {
		return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf("directory %q is not claimed", dir))
	}
	c.Created, c.Mounted = &created, mounted
	return d.writeClaim(nameOfDirectory(dir), c)
}

// Created reports whether a directory with this identity was created for the sandbox.
func (d *Dir) Created(dir, sandbox string, id Identity) (bool, error) {
	c, err := d.Directory(dir)
	if err != nil || !c.IsCreated(id) {
		return false, err
	}
	return len(c.Holders) > 0 && c.otherHolder(sandbox) == nil, nil
}

// Directory returns the claim of a directory. The claim of an unclaimed one has no holders.
func (d *Dir) Directory(dir string) (Claim, error) {
	open, err := d.open()
	if err != nil {
		return Claim{}, err
	}
	defer open.Close()
	return open.readClaim(nameOfDirectory(dir))
}

// HeldDirectories returns the directories that a holder has claimed.
func (d *Dir) HeldDirectories(h Holder) (dirs []string, err error) {
	open, err := d.open()
	if err != nil {
		return nil, err
	}
	defer open.Close()
	names, err := open.listNames()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		path, isSocket := pathOfFile(name)
		if isSocket {
			continue
		}
		c, err := open.readClaim(name)
		if err != nil {
			return nil, err
		}
		if slices.Contains(c.Holders, h) {
			dirs = append(dirs, path)
		}
	}
	return dirs, nil
}

// HoldSockets records that a sandbox has sockets of the host. A socket below a directory that
// another sandbox has claimed is errdefs.ErrConflict. The error is about the first socket that
// is not held; held is how many before it are.
func (d *Dir) HoldSockets(sockets []string, h Holder) (held int, err error) {
	open, err := d.lock(true)
	if err != nil {
		return 0, err
	}
	defer open.Close()
	for i, socket := range sockets {
		name := nameOfSocket(socket)
		c, err := open.readClaim(name)
		if err != nil {
			return i, err
		}
		if slices.Contains(c.Holders, h) {
			continue // nobody else has claimed a directory above it since: ClaimDirectory refuses that
		}
		if err := open.claimants(socket).Check(h.Sandbox); err != nil {
			return i, err
		}
		c.Holders = append(c.Holders, h)
		if err := d.writeClaim(name, c); err != nil {
			return i, err
		}
	}
	return len(sockets), nil
}

// Claimants says who has claimed the directories above a socket.
type Claimants struct {
	socket string
	claims []directoryClaim
	err    error
}

type directoryClaim struct {
	dir string
	Claim
}

// Claimants returns the claims of the directories that a socket lies in.
func (d *Dir) Claimants(socket string) Claimants {
	open, err := d.open()
	if err != nil {
		return Claimants{socket: socket, err: err}
	}
	defer open.Close()
	return open.claimants(socket)
}

func (d *openDir) claimants(socket string) Claimants {
	all := Claimants{socket: socket}
	for dir := filepath.Dir(socket); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		c, err := d.readClaim(nameOfDirectory(dir))
		if err != nil {
			all.err = err
		}
		if len(c.Holders) > 0 {
			all.claims = append(all.claims, directoryClaim{dir, c})
		}
	}
	return all
}

// HasAny reports whether there is a claim.
func (a Claimants) HasAny() bool { return len(a.claims) > 0 }

// Check returns errdefs.ErrConflict if one of the claims is another sandbox's: the application
// there could replace the vswitch's socket.
func (a Claimants) Check(sandbox string) error {
	for _, c := range a.claims {
		if other := c.otherHolder(sandbox); other != nil {
			return errdefs.ErrConflict.WithMessage(fmt.Sprintf("socket %q lies in directory %q, which belongs to sandbox %s, whose application can write it",
				a.socket, c.dir, other.Sandbox))
		}
	}
	return a.err
}

// ReleaseDirectory removes a holder's claim of one directory. No claim is no error.
func (d *Dir) ReleaseDirectory(dir string, h Holder) error {
	return d.release([]string{nameOfDirectory(dir)}, func(_ bool, have Holder) bool { return have == h })
}

// ReleaseSockets removes a holder's holds of sockets, and reports whether it still claims
// directories.
func (d *Dir) ReleaseSockets(h Holder) (directories bool, err error) {
	err = d.release(nil, func(isSocket bool, have Holder) bool {
		directories = directories || have == h && !isSocket
		return have == h && isSocket
	})
	return directories, err
}

// Release removes all claims and holds of the holders for which isGone is true, and what a writer left that
// was killed.
func (d *Dir) Release(isGone func(Holder) bool) error {
	return d.release(nil, func(_ bool, have Holder) bool { return isGone(have) })
}

// release removes holders from the files of these names, or from all files for nil.
func (d *Dir) release(names []string, isGone func(isSocket bool, h Holder) bool) error {
	open, err := d.lock(false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer open.Close()
	var errs []error
	if names == nil {
		if names, err = open.listNames(); err != nil {
			return err
		}
		errs = append(errs, hostfs.RemoveUnfinished(d.dir))
	}
	for _, name := range names {
		c, err := open.readClaim(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, isSocket := pathOfFile(name)
		left := slices.DeleteFunc(slices.Clone(c.Holders), func(h Holder) bool { return isGone(isSocket, h) })
		switch {
		case len(left) == 0:
			// Also a damaged file, which has no holders.
			if err = os.Remove(filepath.Join(d.dir, name)); errors.Is(err, os.ErrNotExist) {
				err = nil
			}
		case len(left) < len(c.Holders):
			c.Holders = left
			err = d.writeClaim(name, c)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("release claim %q: %w", filepath.Join(d.dir, name), err))
		}
	}
	return errors.Join(errs...)
}

// listNames lists the names of the files of claims and holds.
func (d *openDir) listNames() ([]string, error) {
	if d == nil {
		return nil, nil
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(names, func(name string) bool {
		path, _ := pathOfFile(name)
		return !filepath.IsAbs(path)
	}), nil
}

// maxClaim limits a file, in bytes. A socket that all pods of a node share has as many holders.
const maxClaim = 4 << 20

// readClaim reads one file. A file that does not exist, or that a crash cut short, has no holders.
func (d *openDir) readClaim(name string) (Claim, error) {
	if d == nil {
		return Claim{}, nil
	}
	data, err := d.readFile(name)
	if errdefs.IsNotFound(err) {
		return Claim{}, nil
	}
	if err != nil {
		return Claim{}, fmt.Errorf("read claim: %w", &os.PathError{Op: "read", Path: filepath.Join(d.Name(), name), Err: err})
	}
	var c Claim
	if json.Unmarshal(data, &c) != nil {
		return Claim{}, nil
	}
	return c, nil
}

func (d *openDir) readFile(name string) ([]byte, error) {
	fd, err := hostfs.OpenatBeneath(int(d.Fd()), name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return hostfs.ReadRegular(fd, maxClaim)
}

// Close closes the directory, which unlocks the claims.
func (d *openDir) Close() error {
	if d == nil {
		return nil
	}
	return d.File.Close()
}

// writeClaim replaces a file atomically. The lock is held.
func (d *Dir) writeClaim(name string, c Claim) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	file := filepath.Join(d.dir, name)
	if err := hostfs.ReplaceFile(file, data, 0o600); err != nil {
		return fmt.Errorf("write claim %q: %w", file, err)
	}
	return nil
}

const socketPrefix = "="

func nameOfDirectory(dir string) string { return escape(filepath.Clean(dir)) }

func nameOfSocket(socket string) string { return socketPrefix + escape(filepath.Clean(socket)) }

// pathOfFile returns the path that a file is about.
func pathOfFile(name string) (path string, isSocket bool) {
	rest, isSocket := strings.CutPrefix(name, socketPrefix)
	return unescape(rest), isSocket
}

// within reports whether path is dir or lies below it.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, dir+"/")
}

// escape makes a path one file name; unescape undoes it.
var escape, unescape = strings.NewReplacer("%", "%25", "/", "%2F").Replace, strings.NewReplacer("%2F", "/", "%25", "%").Replace
