// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/internal/socketdir"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	// sunPath is the longest path a UNIX socket address holds, without its NUL.
	sunPath = 107
	// containerDir is where a container finds its sockets, as net/<ifName>/<file>.
	containerDir = "/var/run/jackfield"
)

// place is where an attachment's socket is.
type place struct {
	dir    string // the attachment's directory below the socket directory, one element; "" where none is made
	socket string // path of the socket on the host, or "@name"
}

// placeSocket decides where the socket of an attachment is: in a directory of its
// own below the socket directory. The name of that directory is made of the
// container's and the interface's, and is the same whenever it is asked for.
func (c *call) placeSocket() (place, error) {
	d := &c.conf.device
	file := d.field["path"]
	switch {
	case !d.isSocket():
		return place{}, nil
	case d.abstract():
		return place{socket: file}, nil
	case path.IsAbs(file):
		rel, ok := strings.CutPrefix(file, c.conf.socketDir+"/")
		if !ok || !strings.Contains(rel, "/") {
			return place{}, invalid("device.path", `"`+short(file)+`"`, "a socket in a directory below socketDir, "+c.conf.socketDir)
		}
		return place{socket: file}, c.checkLength(file)
	case file == "":
		file = string(d.kind) + ".sock"
	}
	p := place{dir: attachmentDir(c.conf.name, c.ContainerID, c.IfName)}
	p.socket = path.Join(c.conf.socketDir, p.dir, file)
	return p, c.checkLength(p.socket)
}

// attachmentDir is the name of an attachment's directory: the beginning of the
// container's ID, for people, a hash of all that names the attachment, and the
// interface. It has 41 bytes at most.
func attachmentDir(network, containerID, ifName string) string {
	sum := sha256.Sum256([]byte(network + "\x00" + containerID + "\x00" + ifName))
	return containerID[:min(12, len(containerID))] + "-" + hex.EncodeToString(sum[:6]) + "-" + ifName
}

// checkLength holds a socket's path against what a UNIX socket address holds, on
// the host and in the container.
func (c *call) checkLength(socket string) error {
	inside := path.Join(containerDir, "net", c.IfName, path.Base(socket))
	for _, p := range []struct{ what, path string }{{"on the host", socket}, {"in the container", inside}} {
		if n := len(p.path); n > sunPath {
			return fail(codeConfig, "invalid network configuration: socketDir, device.path: the socket's path is too long",
				"%s it is %q, of %d bytes; a UNIX socket's path has at most %d: shorten socketDir or device.path", p.what, p.path, n, sunPath)
		}
	}
	return nil
}

// openDir opens a directory of the configuration, and makes it and its parents
// where they are missing, with mode perm whatever the umask. key names it in
// errors. A directory that everybody may write to is refused.
func openDir(host hostfs.Root, key, dir string, perm uint32) (*os.File, error) {
	f, err := host.MakeDir(dir, perm)
	if err != nil {
		return nil, fail(codeIO, "I/O failure: "+key, "open %s %q: %v", key, dir, err)
	}
	if err := checkDir(f, key, dir); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// checkDir refuses a directory in which everybody could make what is to be made
// there.
func checkDir(f *os.File, key, dir string) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return fail(codeIO, "I/O failure: "+key, "look at %s %q: %v", key, dir, err)
	}
	if st.Mode&0o002 != 0 {
		return invalid(key, fmt.Sprintf("%q with mode %04o", dir, st.Mode&0o7777), "a directory that not everybody can write to; chmod o-w it")
	}
	return nil
}

// claimedPath is the canonical path of an attachment's directory, by which it is claimed.
func (c *call) claimedPath(name string) string {
	return path.Join(c.Host.Canonical(c.conf.socketDir), name)
}

// holder is the container as this plugin claims for it.
func (c *call) holder(containerID string) claims.Holder {
	return claims.Holder{Sandbox: containerID, Adapter: claims.CNI, StateDir: c.conf.stateDir}
}

// makeSocketDir creates an attachment's directory and claims it for the container, so
// that no other one gets it before the first container of the pod is created.
func (c *call) makeSocketDir(name string) (err error) {
	dir, claimed := claims.At(c.Host, c.conf.claimsDir), c.claimedPath(name)
	_, fresh, err := dir.ClaimDirectory(claimed, c.holder(c.ContainerID))
	if errdefs.IsConflict(err) {
		return fail(codeConfig, "the attachment's socket directory belongs to another pod", "%v", err)
	}
	if err != nil {
		return fail(codeIO, "I/O failure: claimsDir", "claim %q in %q: %v", claimed, c.conf.claimsDir, err)
	}
	c.step("directory claimed")
	fd, err := c.createSocketDir(name)
	if err != nil {
		if fresh && asError(err).Code == codeExists {
			// What stands there is not this attachment's.
			err = joinErrors(err, dir.ReleaseDirectory(claimed, c.holder(c.ContainerID)))
		}
		return err
	}
	defer unix.Close(fd)
	c.step("directory created")
	return c.recordSocketDir(dir, claimed, fd)
}

// recordSocketDir records the creation of an attachment's directory in its claim, and
// mounts the file system that bounds the directory, where the configuration has a size.
// The plugin works in the runtime's mount namespace, so that the host sees the mount.
func (c *call) recordSocketDir(dir *claims.Dir, claimed string, fd int) error {
	if size := c.conf.socketDirSize; size > 0 {
		if _, err := socketdir.Mount(dir, claimed, fd, size); err != nil {
			return fail(codeIO, "I/O failure: socketDirSize", "bound directory %q: %v", claimed, err)
		}
		c.step("file system mounted")
		return nil
	}
	id, err := claims.IdentityOf(fd)
	if err == nil {
		err = dir.SetCreated(claimed, id)
	}
	if err != nil {
		return fail(codeIO, "I/O failure: claimsDir", "record the creation of %q in %q: %v", claimed, c.conf.claimsDir, err)
	}
	return nil
}

// createSocketDir creates an attachment's directory. Owner, group and the group's
// right to write are those of the socket directory, so that a vswitch which does
// not run as root can make its sockets.
func (c *call) createSocketDir(name string) (fd int, err error) {
	dir := c.conf.socketDir
	f, err := openDir(c.Host, "socketDir", dir, 0o755)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return -1, fail(codeIO, "I/O failure: socketDir", "look at %q: %v", dir, err)
	}
	fd, err = hostfs.MkdirAt(int(f.Fd()), name, 0o755|st.Mode&0o020)
	if errors.Is(err, unix.EEXIST) {
		return -1, fail(codeExists, "the attachment exists already", "directory %q is there, and no record says that this plugin made it: remove it", path.Join(dir, name))
	}
	if err != nil {
		return -1, fail(codeIO, "I/O failure: socketDir", "make %q: %v", path.Join(dir, name), err)
	}
	if int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
		if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
			unix.Close(fd)
			return -1, fail(codeIO, "I/O failure: socketDir", "give %q the owner of %q: %v", path.Join(dir, name), dir, err)
		}
	}
	return fd, nil
}

// removeClaimedDir removes the directory of a record, where it still is the one that ADD
// created, and then its claim. One that a killed ADD left without saying which it is
// is removed only when it is empty.
func (c *call) removeClaimedDir(r *record) error {
	if r.Directory == "" {
		return nil
	}
	if r.Claimed == "" { // of an earlier version
		return removeSocketDir(c.Host, r.SocketDir, r.Directory, &claims.Claim{}, func(claims.Identity) removal { return removeAll })
	}
	dir := claims.At(c.Host, r.ClaimsDir)
	claim, err := dir.Directory(r.Claimed)
	if err != nil {
		return fail(codeIO, "I/O failure: claimsDir", "%v", err)
	}
	err = removeSocketDir(c.Host, r.SocketDir, r.Directory, &claim, func(found claims.Identity) removal {
		switch {
		case claim.Created == nil:
			return removeEmpty
		case *claim.Created != found:
			return removeNothing
		}
		return removeAll
	})
	if err != nil {
		return err
	}
	if err := dir.ReleaseDirectory(r.Claimed, c.holder(r.ContainerID)); err != nil {
		return fail(codeIO, "I/O failure: claimsDir", "%v", err)
	}
	return nil
}

// removal is how much of a directory is removed.
type removal int

const (
	removeNothing removal = iota
	removeEmpty           // the directory, where it is empty
	removeAll             // the directory with what applications left in it
)

// removeSocketDir unmounts the file system that the claim has of an attachment's
// directory, and removes the directory as far as much says of the one that is found. No symlink is followed, nothing outside is touched, and nothing that is not a
// directory is removed. That there is none is no error.
func removeSocketDir(host hostfs.Root, dir, name string, claim *claims.Claim, much func(claims.Identity) removal) error {
	if name == "" {
		return nil
	}
	if err := deviceinfo.CheckFileName(name); err != nil {
		return err
	}
	f, err := host.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fail(codeIO, "I/O failure: socketDir", "open %q: %v", dir, err)
	}
	defer f.Close()
	found, err := socketdir.Unmount(int(f.Fd()), name, claim)
	if errdefs.IsNotFound(err) || errdefs.IsPermissionDenied(err) {
		return nil // nothing, something else, or a symlink
	}
	if err == nil {
		switch much(found) {
		case removeEmpty:
			err = unix.Unlinkat(int(f.Fd()), name, unix.AT_REMOVEDIR)
			if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
				err = nil
			}
		case removeAll:
			err = hostfs.RemoveTreeAt(int(f.Fd()), name)
		}
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fail(codeIO, "I/O failure: socketDir", "remove %q: %v", path.Join(dir, name), err)
	}
	return nil
}
