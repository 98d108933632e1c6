// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
	"github.com/jackfield/jackfield/internal/port/record"
)

// dirInContainer is the directory in a container below which its sockets are, as
// net/<ifName>/<file>.
const dirInContainer = "/var/run/jackfield"

// planSocket plans the socket of an attachment in its own directory below the socket directory. The
// name of that directory depends only on network, container and interface, so Remove can derive it.
func (a *addition) planSocket() (dir, socket string, err error) {
	d := &a.Device
	file := d.Field["path"]
	switch {
	case d.isAbstract():
		return "", file, nil
	case path.IsAbs(file):
		rel, ok := strings.CutPrefix(file, a.SocketDir+"/")
		if !ok || !strings.Contains(rel, "/") {
			return "", "", a.Invalid("device.path", diag.Quote(file),
				"a socket in a directory below socketDir, "+a.SocketDir)
		}
		return "", file, a.checkLength(file)
	case file == "":
		file = string(d.Kind) + ".sock"
	}
	dir = DirName(a.Key)
	socket = path.Join(a.SocketDir, dir, file)
	return dir, socket, a.checkLength(socket)
}

// planAddSocket plans the socket of an Add. The path in the device plugin's device-info comes
// before the configured one, and the two must agree.
func (a *addition) planAddSocket() error {
	d := &a.Device
	if !d.IsSocket() {
		return nil
	}
	file := path.Join(a.InfoDir, a.record.InfoFile)
	if err := a.completeSocket(file, a.before); err != nil {
		return err
	}
	configured, described := d.Field["path"], SocketPath(a.before)
	if described != "" {
		// An earlier ADD of this attachment may have written the file, so its own path there is no
		// contradiction.
		switch dir, socket, err := a.planSocket(); {
		case err == nil && dir != "" && socket == described:
			a.record.Directory, a.socket = dir, socket
			return nil
		case configured == "" || a.Root.IsSameFile(configured, described):
			a.socket = described
			if strings.HasPrefix(described, "@") {
				return nil
			}
			return a.checkLength(described)
		default:
			return a.contradiction("path", configured, described, file, string(d.Kind)+".path")
		}
	}
	if err := a.checkSocketPath(); err != nil {
		return err
	}
	var err error
	a.record.Directory, a.socket, err = a.planSocket()
	return err
}

// DirName returns the name of an attachment's directory. It joins the beginning of the container's
// ID, for readers, a hash of network, container and interface, and the interface. It has at most 41
// bytes.
func DirName(k record.Key) string {
	sum := sha256.Sum256([]byte(k.Network + "\x00" + k.ContainerID + "\x00" + k.Interface))
	return k.ContainerID[:min(12, len(k.ContainerID))] + "-" + hex.EncodeToString(sum[:6]) + "-" + k.Interface
}

// checkLength checks that the socket's paths on the host and in the container fit a UNIX socket address.
func (a *addition) checkLength(socket string) error {
	inside := path.Join(dirInContainer, "net", a.Interface, path.Base(socket))
	for _, p := range []struct{ side, path string }{{"on the host", socket}, {"in the container", inside}} {
		if n := len(p.path); n > hostfs.MaxSocketPath {
			return Fail(codeConfig,
				"invalid network configuration: socketDir, device.path: the socket's path is too long",
				"%s it is %q, of %d bytes; a UNIX socket's path has at most %d: shorten socketDir or device.path",
				p.side, p.path, n, hostfs.MaxSocketPath)
		}
	}
	return nil
}

// openDir opens a directory of the configuration, and creates it if it is missing. key names the
// directory in errors. openDir returns an error if another user could replace the directory or
// create files in it.
func openDir(host hostfs.Root, key, dir string, perm uint32) (*os.File, error) {
	open := trust.MakeOwnDir
	if key == "socketDir" {
		open = trust.MakeSharedDir // may belong to the vswitch's user
	}
	f, err := open(host, dir, perm)
	if err != nil {
		return nil, dirError(key, err)
	}
	return f, nil
}

// claimedPath returns the canonical path of an attachment's directory. Claims use canonical paths,
// so that two spellings of one path conflict.
func claimedPath(root hostfs.Root, socketDir, name string) string {
	return path.Join(root.Canonical(socketDir), name)
}

// holder returns the holder of a container's directories, with the program that creates them.
func (t *Attachment) holder(containerID string) sockdir.Holder {
	return sockdir.Holder{Sandbox: containerID, Adapter: cmp.Or(t.Adapter, sockdir.CNI), StateDir: t.StateDir}
}

// claimAndCreateSocketDir claims an attachment's directory for the pod and creates it. The claim
// prevents other pods from getting the directory before the pod's first container is created.
func (a *addition) claimAndCreateSocketDir(name string) (err error) {
	dirs, claimed, holder := sockdir.New(a.Root, a.ClaimsDir), claimedPath(a.Root, a.SocketDir,
		name), a.holder(a.ContainerID)
	fresh, err := dirs.Claim(claimed, holder, true)
	if errdefs.IsConflict(err) {
		return Fail(codeConfig, "the attachment's socket directory belongs to another pod", "%v", err)
	}
	if err != nil {
		return Fail(codeIO, "I/O failure: claimsDir", "record the holder of %q in %q: %v", claimed, a.ClaimsDir, err)
	}
	a.Reached.report("holder of the directory recorded")
	fd, err := a.createSocketDir(name)
	if err != nil {
		if fresh && AsError(err).Code == CodeExists {
			// The existing directory is not this attachment's.
			err = JoinErrors(err, dirs.ReleaseDirectory(claimed, holder))
		}
		return err
	}
	defer unix.Close(fd)
	a.Reached.report("directory created")
	// The plugin runs in the runtime's mount namespace, so the host sees the mount that limits the size.
	root, err := dirs.Limit(claimed, fd, holder, a.SocketDirSize)
	switch {
	case err != nil && a.SocketDirSize > 0:
		return Fail(codeIO, "I/O failure: socketDirSize", "bound directory %q: %v", claimed, err)
	case err != nil:
		return Fail(codeIO, "I/O failure: claimsDir", "record the creation of %q in %q: %v", claimed, a.ClaimsDir, err)
	case root != fd:
		unix.Close(root)
		a.Reached.report("file system mounted")
	}
	return nil
}

// createSocketDir creates an attachment's directory with the owner, group and group write
// permission of the socket directory, so that an unprivileged vswitch can create its sockets there.
func (a *addition) createSocketDir(name string) (fd int, err error) {
	dir := a.SocketDir
	f, err := openDir(a.Root, "socketDir", dir, 0o755)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return -1, Fail(codeIO, "I/O failure: socketDir", "inspect %q: %v", dir, err)
	}
	fd, err = hostfs.MkdirAt(int(f.Fd()), name, 0o755|st.Mode&0o020)
	if errors.Is(err, unix.EEXIST) {
		return -1, Fail(CodeExists, "the attachment already exists",
			"directory %q exists, and this plugin has no record of creating it: remove it", path.Join(dir, name))
	}
	if err != nil {
		return -1, Fail(codeIO, "I/O failure: socketDir", "create %q: %v", path.Join(dir, name), err)
	}
	if int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid() {
		if err := unix.Fchown(fd, int(st.Uid), int(st.Gid)); err != nil {
			unix.Close(fd)
			return -1, Fail(codeIO, "I/O failure: socketDir", "set the owner of %q to that of %q: %v",
				path.Join(dir, name), dir, err)
		}
	}
	return fd, nil
}

// removeClaimedDir removes the directory of a record, if it still is the one that Add created, and then its claim. The
// directory must have one element, whatever a record says.
func (m *removal) removeClaimedDir(r *record.Record) error {
	if r.Directory == "" {
		return nil
	}
	if err := name.CheckFile(r.Directory); err != nil {
		return err
	}
	f, err := trust.OpenSharedDir(m.Root, r.SocketDir)
	switch {
	case errdefs.IsNotFound(err):
		f = nil
	case err != nil:
		return dirError("socketDir", err)
	default:
		defer f.Close()
	}
	if err := sockdir.New(m.Root, r.ClaimsDir).Remove(f, r.Claimed, m.holder(r.ContainerID)); err != nil {
		return Fail(codeIO, "I/O failure: socketDir, claimsDir", "remove %q: %v", r.Claimed, err)
	}
	return nil
}
