// SPDX-License-Identifier: Apache-2.0

package sockaccess

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// node is a host with one socket, /s/a.sock, and containers that are recorded until they are removed.
type node struct {
	*Rights
	t       *testing.T
	path    string // of the socket
	removed map[string]bool
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("not root, which CI promises")
		}
		t.Skip("skipped: only root changes the owner of sockets")
	}
	dir := t.TempDir()
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	testkit.Must(t, os.Mkdir(filepath.Join(dir, "s"), 0o755))
	n := &node{t: t, path: filepath.Join(dir, "s/a.sock"), removed: map[string]bool{}}
	n.Rights = New(host, "/rights", func(id string) bool { return !n.removed[id] })
	l, err := net.Listen("unix", n.path)
	testkit.Must(t, err)
	t.Cleanup(func() { l.Close() })
	testkit.Must(t, os.Chmod(n.path, 0o755))
	return n
}

func accessOf(uid uint32, method edit.AccessMethod) edit.Access {
	return edit.Access{Method: method, User: &edit.User{UID: uid, GID: uid}}
}

func (n *node) grant(id string, a edit.Access) {
	n.t.Helper()
	fd, err := unix.Open(n.path, unix.O_PATH, 0)
	testkit.Must(n.t, err)
	defer unix.Close(fd)
	testkit.Must(n.t, n.Grant("/s/a.sock", fd, []Request{{Container: id, Access: &a}}))
}

func (n *node) remove(id string, a edit.Access) {
	n.t.Helper()
	n.removed[id] = true
	testkit.Must(n.t, n.Revoke([]edit.Socket{{Root: "/s", Rel: "a.sock", Access: a}}, ""))
}

// ACL entries, a mode and a group that an administrator set, before or meanwhile, stay.
func TestACLEntriesOfAdministratorStay(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, addACLUser(n.path, 1234, connectRights))
	n.grant("c1", accessOf(1234, edit.ByACL))
	n.grant("c2", accessOf(1235, edit.ByACL))
	testkit.Must(t, addACLUser(n.path, 1236, connectRights))
	n.remove("c1", accessOf(1234, edit.ByACL))
	n.remove("c2", accessOf(1235, edit.ByACL))
	acl, err := readACL(n.path)
	testkit.Must(t, err)
	for uid, granted := range map[uint32]bool{1234: true, 1235: false, 1236: true} {
		if p := userPermissions(acl, uid); p != nil != granted || granted && *p != connectRights {
			t.Errorf("user %d: the ACL is %v", uid, acl)
		}
	}

	n = newNode(t)
	n.grant("c1", accessOf(1234, edit.ByGroup))
	testkit.Must(t, os.Chown(n.path, 7, 8))
	testkit.Must(t, os.Chmod(n.path, 0o660))
	n.remove("c1", accessOf(1234, edit.ByGroup))
	var st unix.Stat_t
	testkit.Must(t, unix.Stat(n.path, &st))
	if st.Uid != 7 || st.Gid != 8 || st.Mode&0o777 != 0o660 {
		t.Errorf("the socket belongs to %d:%d, mode %o", st.Uid, st.Gid, st.Mode&0o777)
	}
}

// An entry of the administrator that the mask limits grants no more after the container than before it.
func TestMaskedACLEntryOfAdministratorIsRestored(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, writeACL(n.path, []aclEntry{{aclUserObj, 7, aclNoID}, {aclUser, 7, 1234}, {aclGroupObj, 5, aclNoID},
		{aclMask, 4, aclNoID}, {aclOther, 5, aclNoID}}))
	permissions := func() uint16 {
		acl, err := readACL(n.path)
		testkit.Must(t, err)
		return *userPermissions(acl, 1234)
	}
	n.grant("c1", accessOf(1234, edit.ByACL))
	if p := permissions(); p&connectRights != connectRights {
		t.Fatalf("the user has no access to the socket: %o", p)
	}
	n.remove("c1", accessOf(1234, edit.ByACL))
	if p := permissions(); p&2 != 0 {
		t.Errorf("the user still has access to the socket: %o", p)
	}
}

func TestACLWithUserGrantsWithoutWidening(t *testing.T) {
	plain := []aclEntry{{aclUserObj, 7, aclNoID}, {aclGroupObj, 5, aclNoID}, {aclOther, 5, aclNoID}}
	one, changed := aclWithUser(plain, 1000, connectRights)
	want := []aclEntry{{aclUserObj, 7, aclNoID}, {aclUser, 6, 1000}, {aclGroupObj, 5, aclNoID}, {aclMask, 7, aclNoID}, {aclOther, 5, aclNoID}}
	if !changed || !reflect.DeepEqual(one, want) {
		t.Errorf("got %v, %v", one, changed)
	}
	if _, changed := aclWithUser(one, 1000, connectRights); changed {
		t.Error("an ACL with sufficient access was changed")
	}
	two, _ := aclWithUser(one, 999, connectRights)
	if two[1].ID != 999 || two[2].ID != 1000 || len(two) != 6 {
		t.Errorf("not sorted: %v", two)
	}
	// A chmod narrowed the mask: other entries stay narrowed.
	two[4].Perm = 4
	three, changed := aclWithUser(two, 999, connectRights)
	if !changed || three[1].Perm != 6 || three[2].Perm != 4 || three[3].Perm != 4 || three[4].Perm != 6 {
		t.Errorf("got %v", three)
	}
}

func TestErrorsOfAccessHaveSentinels(t *testing.T) {
	user := edit.User{UID: 1}
	if _, err := (ownership{}).withAccess(&user, edit.ByGroup, "socket", connectRights); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("group of the host: %v", err)
	}
	if _, err := decodeACL([]byte{9, 0, 0, 0}); !errors.Is(err, errdefs.ErrNotImplemented) {
		t.Errorf("ACL of another version: %v", err)
	}
}
