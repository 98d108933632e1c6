// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Options relax the check. The zero value is what anything needs by which root acts.
type Options struct {
	// AnyOwner accepts a file of any user.
	AnyOwner bool
	// AnyGroup accepts a file that any group can write. Root's group, and this process's own, are always accepted.
	AnyGroup bool
	// AnyMode accepts a file that anybody can write.
	AnyMode bool
	// UnmappedOwner accepts, in a user namespace as of rootless Podman, a file of a user who
	// has no ID in the namespace: root of the host is among them, and what such a file
	// decides runs as the user who started this process.
	UnmappedOwner bool
	// Sticky accepts a directory that others can write if its sticky bit keeps them from replacing
	// each other's files. The caller checks the owner of the file in it.
	Sticky bool
	// StickyGroup is Sticky for directories that a group can write, and not everybody. It is for programs that run some
	// time after the check: everybody could create one that is missing for a moment, as during an update.
	StickyGroup bool
}

// Error says why a file or directory is not trusted. It is errdefs.ErrPermissionDenied.
type Error struct {
	Path   string
	Found  string // for example "owned by uid 1000, mode 0644"
	Rule   string // what must hold
	Remedy string // what to do about it
	Owner  bool   // the owner is at fault; otherwise the mode is
}

func (e *Error) Error() string {
	return fmt.Sprintf("%q: found %s: %s; %s", e.Path, e.Found, e.Rule, e.Remedy)
}

func (e *Error) Unwrap() error { return errdefs.ErrPermissionDenied }

// Check returns why the file or directory of a stat is not trusted, nil when it is.
func Check(path string, st *unix.Stat_t, opts Options) *Error {
	perm := st.Mode & 0o7777
	if !opts.AnyOwner && st.Uid != 0 && int(st.Uid) != os.Geteuid() && !(opts.UnmappedOwner && isUnmapped(st.Uid)) {
		remedy := fmt.Sprintf("run `chown root %s`", path)
		if hostfs.IsSharedDir(path, st.Mode) {
			remedy = "choose a directory that belongs to root"
		}
		return &Error{Path: path, Found: fmt.Sprintf("owned by uid %d, mode %04o", st.Uid, perm),
			Rule: "it must belong to root", Remedy: remedy, Owner: true}
	}
	writable := perm & 0o022
	if opts.AnyGroup || st.Gid == 0 || int(st.Gid) == os.Getegid() {
		writable &= 0o002
	}
	isSticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && perm&unix.S_ISVTX != 0
	if isSticky && (opts.Sticky || opts.StickyGroup && writable&0o002 == 0) {
		writable = 0
	}
	if writable != 0 && !opts.AnyMode {
		if opts.AnyGroup && !hostfs.IsSharedDir(path, st.Mode) {
			return &Error{Path: path, Found: fmt.Sprintf("mode %04o", perm), Rule: "not all users may write to it",
				Remedy: "run `chmod o-w " + path + "`"}
		}
		return &Error{Path: path, Found: fmt.Sprintf("mode %04o", perm),
			Rule: "it must be writable by its owner alone", Remedy: hostfs.WriteRemedy(path, st.Mode)}
	}
	return nil
}

// userNamespace describes this process's user namespace; a test replaces it.
var userNamespace = sync.OnceValues(hostfs.UserNamespace)

// isUnmapped reports whether a uid stands for the users outside of this process's user
// namespace.
func isUnmapped(uid uint32) bool {
	outside, inside := userNamespace()
	return inside && uid == outside.Unmapped
}

// Peer returns the process at the other end of a UNIX socket, as of when it connected. Its ID is 0
// where this process's PID namespace does not have it.
func Peer(conn syscall.Conn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	control := raw.Control(func(fd uintptr) {
		cred,
			err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(control, err)
}
