// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"errors"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// specFile is one spec file as it was read. It never changes.
type specFile struct {
	dir         *specDir    // its path and priority alone
	name        string      // in the directory
	size, mtime int64       // bytes, and ns since the epoch
	spec        *specs.Spec // empty for a refused file
	err         *SpecError  // nil for a usable file
	// kind is the kind, and refused the devices of a refused file, as far as they could be read.
	kind    string
	refused []string

	// id is the identity of the file that was read. It is zero, which no file has, if the next lookup must read the
	// file again.
	id identity
	// isLinked means that the file can change without an event of its directory, through the target of a symlink or
	// another hard link.
	isLinked bool
	// targetDir is the directory of a symlink's target, "" for other files. Its owner and mode decide whether the
	// file is trusted.
	targetDir string
	targetID  identity
}

// compareFiles orders files by the priority of their directory, and by name.
func compareFiles(a, b *specFile) int {
	return cmp.Or(a.dir.priority-b.dir.priority, strings.Compare(a.name, b.name))
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

// describe returns the file in the public type. Err is the fault of the file, or else its conflicts.
func (f *specFile) describe(conflicts []*ConflictError) File {
	out := File{Path: f.hostPath(), Priority: f.dir.priority, Kind: f.kind, Devices: slices.Clone(f.deviceNames()),
		Conflicts: conflicts, Size: f.size}
	if f.mtime != 0 {
		out.ModTime = time.Unix(0, f.mtime)
	}
	var errs []error
	for _, conflict := range conflicts {
		errs = append(errs, conflict)
	}
	if out.Err = errors.Join(errs...); f.err != nil {
		out.Err = f.err
	}
	return out
}

// equal reports whether two states of the file look equal in a snapshot.
func (f *specFile) equal(o *specFile) bool {
	return f.size == o.size && f.mtime == o.mtime && f.kind == o.kind && slices.Equal(f.refused, o.refused) &&
		reflect.DeepEqual(f.err, o.err) && reflect.DeepEqual(f.spec, o.spec)
}

// rememberNames keeps the kind and the device names of a refused file for messages. It keeps few names, because the
// text can be anything.
func (f *specFile) rememberNames(kind string, names []string) {
	if checkKind(kind) != nil {
		return
	}
	f.kind = kind
	for _, name := range names {
		if len(f.refused) == 64 {
			break
		}
		if len(name) <= 256 && checkName(name) == nil {
			f.refused = append(f.refused, name)
		}
	}
}

// refuse records the faults of the file.
func (f *specFile) refuse(faults []*diag.Diagnostic) *specFile {
	f.spec, f.err = &specs.Spec{}, &SpecError{Path: f.hostPath(), Faults: fieldErrors(faults)}
	return f
}

// identity tells one state of a file or directory, or its absence, from another without reading it. A directory has
// neither size nor time stamps here, because events report the changes inside it.
type identity struct {
	hostfs.FileID
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
	id := identity{FileID: hostfs.StatID(&st), mode: st.Mode, uid: st.Uid, gid: st.Gid}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		id.size, id.mtime, id.ctime = st.Size, st.Mtim.Nano(), st.Ctim.Nano()
	}
	return id
}

// isTooRecent reports whether a file of this identity, read at now, can change again under the same time stamps. The
// kernel's clock for time stamps advances every 1 to 10 ms, and some file systems keep whole seconds only.
func (id identity) isTooRecent(now time.Time) bool {
	window := 20 * time.Millisecond
	if id.mtime%1e9 == 0 && id.ctime%1e9 == 0 {
		window = 2 * time.Second
	}
	return max(id.mtime, id.ctime) > now.UnixNano()-int64(window)
}
