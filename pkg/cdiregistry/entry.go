// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// specDir is one directory of the registry, fixed for its life.
type specDir struct {
	path string
	prio int
	// prefix is how many bytes of a file's path come before its name.
	prefix int
	words  *words // of the registry
}

// check is what a snapshot must do about an entry that the kernel's announcements
// do not cover.
type check uint8

const (
	// checkNone: events of the directory tell all changes.
	checkNone check = iota
	// checkStat: the file can change from elsewhere, through a symlink's target or
	// another hard link, so that its identity is compared at each snapshot.
	checkStat
	// checkReload: the file could not be read, or not to the end, for a reason that
	// may pass.
	checkReload
)

// entry is one spec file as it was read. It never changes.
type entry struct {
	dir   *specDir
	piece piece
	err   *refusal // nil for a usable file
	id    identity
	seq   uint64 // of the batch that loaded it
	check check
	// racy tells that the file was changed so shortly before it was read that a later
	// change may carry the same time stamp.
	racy bool
	// target is the directory that a symlinked file is in; nil for others.
	target *targetDir
}

// targetDir is a directory outside of the registry's own on whose owner and mode it
// depends whether a file is believed.
type targetDir struct {
	path string
	id   dirIdentity
}

// same tells that two files depend on one state of one directory.
func (t *targetDir) same(o *targetDir) bool {
	return t == o || t != nil && o != nil && *t == *o
}

// refusal is why a file is refused, and what it would have declared as far as known.
type refusal struct {
	SpecError
	kind  string
	names []string // of devices
}

// kind is the kind of the file's devices, as far as known.
func (e *entry) kind() string {
	if e.err != nil {
		return e.err.kind
	}
	return e.blob().kind()
}

func (e *entry) blob() blob { return e.piece.content(e.dir.words) }

// key is the name in the directory.
func (e *entry) key() string  { return e.path()[e.dir.prefix:] }
func (e *entry) path() string { return e.piece.path() }

// join is the host path of a name in the directory.
func (d *specDir) join(name string) string {
	if d.path == "/" {
		return d.path + name
	}
	return d.path + "/" + name
}

// same tells that reading the file again gave what was known.
func (e *entry) same(o *entry) bool {
	return e.id == o.id && e.check == o.check && e.racy == o.racy && e.target.same(o.target) &&
		(e.err == nil) == (o.err == nil) && (e.err == nil || e.err.Error() == o.err.Error()) && e.blob().same(o.blob())
}

// devices is how many devices the entry declares.
func (e *entry) devices() int {
	if e.err != nil {
		return len(e.err.names)
	}
	return int(e.piece.devices)
}

func (e *entry) deviceName(i int) string {
	if e.err != nil {
		return e.err.names[i]
	}
	return e.blob().deviceName(i)
}

// identity tells one state of a file from another without reading it.
type identity struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // ns since the epoch
	mode, uid    uint32
	errno        unix.Errno // why the file could not be looked at
}

func identityOf(st *unix.Stat_t) identity {
	return identity{
		dev: uint64(st.Dev), ino: st.Ino, size: st.Size,
		mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		mode: st.Mode, uid: st.Uid,
	}
}

// racyAt tells whether a file of this identity, read at now, may be changed again
// under the same time stamps. The kernel's clock for them advances every 1 to 10
// ms, and some file systems keep whole seconds only.
func (id identity) racyAt(now time.Time) bool {
	window := 20 * time.Millisecond
	if id.mtime%1e9 == 0 && id.ctime%1e9 == 0 {
		window = 2 * time.Second
	}
	return max(id.mtime, id.ctime) > now.UnixNano()-int64(window)
}

// dirIdentity tells one state of a directory's own inode, or of its absence, from
// another. The time stamps are left out: what happens in the directory is
// announced.
type dirIdentity struct {
	dev, ino       uint64
	mode, uid, gid uint32
	errno          unix.Errno
}

func dirIdentityOf(st *unix.Stat_t) dirIdentity {
	return dirIdentity{dev: uint64(st.Dev), ino: st.Ino, mode: st.Mode, uid: st.Uid, gid: st.Gid}
}

// errnoOf is the errno in an error; EIO when there is none.
func errnoOf(err error) unix.Errno {
	if err == nil {
		return 0
	}
	var no unix.Errno
	if errors.As(err, &no) {
		return no
	}
	return unix.EIO
}
