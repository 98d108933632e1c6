// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"path"
	"reflect"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// specFile is one spec file as it was read. It never changes.
type specFile struct {
	dir         *specDir    // its path and priority alone
	name        string      // in the directory
	size, mtime int64       // bytes, and ns since the epoch
	spec        *specs.Spec // empty for a refused file
	err         *SpecError  // nil for a usable file
	// kind and refused are the kind, and the devices of a refused file, as far as known.
	kind    string
	refused []string

	// id is the identity of what was read. It is zero, which no file has, where the next lookup must
	// read the file again.
	id identity
	// isLinked means that the file can change without an event of its directory, through the target of
	// a symlink or another hard link.
	isLinked bool
	// targetDir is the directory of the file that a symlink leads to, "" for other files. Its owner and
	// mode decide whether the file is trusted.
	targetDir string
	targetID  identity
}

func (f *specFile) hostPath() string { return path.Join(f.dir.path, f.name) }

// deviceNames returns the unqualified names, in the order of the file.
func (f *specFile) deviceNames() []string {
	if f.err != nil {
		return f.refused
	}
	names := make([]string, len(f.spec.Devices))
	for i := range names {
		names[i] = f.spec.Devices[i].Name
	}
	return names
}

// equal reports whether a snapshot shows the same of two states of the file.
func (f *specFile) equal(o *specFile) bool {
	return f.size == o.size && f.mtime == o.mtime && f.kind == o.kind && slices.Equal(f.refused, o.refused) &&
		reflect.DeepEqual(f.err, o.err) && reflect.DeepEqual(f.spec, o.spec)
}

// identity tells one state of a file or directory, or of its absence, from another without reading it. That of a
// directory has neither size nor time stamps: events report what happens inside.
type identity struct {
	dev, ino       uint64
	size           int64
	mtime, ctime   int64 // ns since the epoch
	mode, uid, gid uint32
	errno          unix.Errno // why stat failed
}

// identify returns the identity from a result of stat.
func identify(st unix.Stat_t, err error) identity {
	if err != nil {
		return identity{errno: hostfs.Errno(err)}
	}
	id := identity{dev: uint64(st.Dev), ino: st.Ino, mode: st.Mode, uid: st.Uid, gid: st.Gid}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id.size, id.mtime, id.ctime = st.Size, st.Mtim.Nano(), st.Ctim.Nano()
	}
	return id
}

// isTooRecent reports whether a file of this identity, read at now, may change again under
// the same time stamps. The kernel's clock for them advances every 1 to 10 ms, and some file
// systems keep whole seconds only.
func (id identity) isTooRecent(now time.Time) bool {
	window := 20 * time.Millisecond
	if id.mtime%1e9 == 0 && id.ctime%1e9 == 0 {
		window = 2 * time.Second
	}
	return max(id.mtime, id.ctime) > now.UnixNano()-int64(window)
}
