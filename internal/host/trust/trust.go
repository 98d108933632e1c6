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

// Options relax the check. The zero value is the rule for files that control root's actions.
type Options struct {
	// AnyOwner accepts a file of any user.
	AnyOwner bool
	// AnyGroup accepts a file that any group can write. Root's and this process's own group are
	// always accepted.
	AnyGroup bool
	// AnyMode accepts a file that any user can write.
	AnyMode bool
	// UnmappedOwner accepts, in a user namespace like rootless Podman's, a file whose owner has no
	// ID in the namespace. That includes root of the host. Actions that such a file controls run
	// as the user who started this process.
	UnmappedOwner bool
	// Sticky accepts a directory that others can write if its sticky bit prevents them from
	// replacing each other's files. The caller checks the owner of the file in it.
	Sticky bool
	// StickyGroup is Sticky for directories that a group can write, but not everyone. It is meant
	// for programs that run some time after the check: in a directory that everyone can write,
	// anyone could create a program that is missing for a moment, such as during an update.
	StickyGroup bool
}

// Error is the reason why a file or directory is not trusted. It is errdefs.ErrPermissionDenied.
type Error struct {
	Path   string
	Found  string // for example "owned by uid 1000, mode 0644"
	Rule   string // the rule that is broken
	Remedy string
	Owner  bool // the owner breaks the rule; otherwise the mode does
}

func (e *Error) Error() string {
	return fmt.Sprintf("%q: found %s: %s; %s", e.Path, e.Found, e.Rule, e.Remedy)
}

func (e *Error) Unwrap() error { return errdefs.ErrPermissionDenied }

// Check returns the reason why the file or directory of a stat is not trusted, or nil.
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

// userNamespace describes this process's user namespace. A test replaces it.
var userNamespace = sync.OnceValues(hostfs.UserNamespace)

// isUnmapped reports whether a uid stands for users outside of this process's user namespace.
func isUnmapped(uid uint32) bool {
	outside, inside := userNamespace()
	return inside && uid == outside.Unmapped
}

// Peer returns the process at the other end of a UNIX socket at the time of its connection. Its ID
// is 0 if it is not in this process's PID namespace.
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
