// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"errors"
	"os"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestCheckTrustsFilesOfRootThatNobodyElseWrites(t *testing.T) {
	self, group := uint32(os.Geteuid()), uint32(os.Getegid())
	other := self + 1000
	for _, c := range []struct {
		uid, gid, mode uint32
		opts           Options
		want           string // the message, "" for trusted
	}{
		{uid: 0, mode: 0o644},
		{uid: self, mode: 0o755},
		{uid: other, mode: 0o644, want: `"/etc/cdi/a.json": found owned by uid 1000, mode 0644: it must belong to root; run ` + "`chown root /etc/cdi/a.json`"},
		{uid: 0, gid: group + 7, mode: 0o664, want: `"/etc/cdi/a.json": found mode 0664: it must be writable by its owner alone; run ` + "`chmod go-w /etc/cdi/a.json`"},
		{uid: 0, mode: 0o646, want: `"/etc/cdi/a.json": found mode 0646: it must be writable by its owner alone; run ` + "`chmod go-w /etc/cdi/a.json`"},
		{uid: other, mode: 0o644, opts: Options{AnyOwner: true}},
		{uid: other, mode: 0o646, opts: Options{AnyOwner: true}, want: `"/etc/cdi/a.json": found mode 0646: it must be writable by its owner alone; run ` + "`chmod go-w /etc/cdi/a.json`"},
		{uid: 0, gid: group, mode: 0o664},
		{uid: 0, gid: 0, mode: 0o664},
		{uid: 0, gid: group, mode: 0o666, want: `"/etc/cdi/a.json": found mode 0666: it must be writable by its owner alone; run ` + "`chmod go-w /etc/cdi/a.json`"},
		{uid: 0, gid: group + 7, mode: 0o664, want: `"/etc/cdi/a.json": found mode 0664: it must be writable by its owner alone; run ` + "`chmod go-w /etc/cdi/a.json`"},
	} {
		if c.uid == other && self != 0 {
			continue // the message names another uid
		}
		st := unix.Stat_t{Uid: c.uid, Gid: c.gid, Mode: unix.S_IFREG | c.mode}
		switch err := Check("/etc/cdi/a.json", &st, c.opts); {
		case err == nil && c.want != "":
			t.Errorf("%+v: trusted, want %s", c, c.want)
		case err != nil && (err.Error() != c.want || !errdefs.IsPermissionDenied(err)):
			t.Errorf("%+v: %v, want %s", c, err, c.want)
		}
	}
}

// In a user namespace, root of the host has the uid of every user without an ID there.
func TestCheckInUserNamespace(t *testing.T) {
	defer func(before func() (hostfs.Outside, bool)) { userNamespace = before }(userNamespace)
	const unmapped = 65534
	for _, c := range []struct {
		inside  bool
		opts    Options
		mode    uint32
		trusted bool
	}{
		{true, Options{UnmappedOwner: true}, 0o644, true},
		{true, Options{UnmappedOwner: true}, 0o664, false},
		{true, Options{}, 0o644, false},
		{false, Options{UnmappedOwner: true}, 0o644, false},
	} {
		userNamespace = func() (hostfs.Outside, bool) { return hostfs.Outside{Root: 1000, Unmapped: unmapped}, c.inside }
		st := unix.Stat_t{Uid: unmapped, Gid: unmapped, Mode: unix.S_IFREG | c.mode}
		if err := Check("/etc/cdi/a.json", &st, c.opts); (err == nil) != c.trusted {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestRemedyKeepsTheModeOfSharedDirectories(t *testing.T) {
	st := unix.Stat_t{Mode: unix.S_IFDIR | unix.S_ISVTX | 0o777}
	if err := Check("/tmp", &st, Options{}); err == nil || err.Remedy != "choose a directory that only root can write to" || err.Owner {
		t.Errorf("%v", err)
	}
	if err := Check("/tmp", &st, Options{Sticky: true}); err != nil {
		t.Errorf("a sticky directory where one may be sticky: %v", err)
	}
	st.Uid = uint32(os.Geteuid()) + 1000
	if err := Check("/tmp", &st, Options{Sticky: true}); err == nil || err.Remedy != "choose a directory that belongs to root" || !err.Owner {
		t.Errorf("%v", err)
	}
	st = unix.Stat_t{Mode: unix.S_IFDIR | 0o777}
	if err := Check("/var/lib/jackfield", &st, Options{Sticky: true}); err == nil {
		t.Error("a directory without the sticky bit is trusted")
	}
}

func TestSharedDirIsRefusedIfAllUsersWrite(t *testing.T) {
	root := t.TempDir()
	host, err := hostfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := MakeSharedDir(host, "/a/b", 0o750)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for mode, remedy := range map[uint32]string{0o757: "run `chmod o-w /a/b`", 0o1777: "choose a directory that only root can write to"} {
		if err := unix.Chmod(root+"/a/b", mode); err != nil {
			t.Fatal(err)
		}
		var refused *Error
		if f, err := MakeSharedDir(host, "/a/b", 0o750); f != nil || !errors.As(err, &refused) || refused.Remedy != remedy {
			t.Errorf("mode %04o: %v, want %s", mode, err, remedy)
		}
	}
}
