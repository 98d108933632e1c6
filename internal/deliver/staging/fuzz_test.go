// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"path"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Files of the state directory and of /proc are decoded correctly or rejected. No content leads to an
// unmount or a removal outside of the container's directory and the socket roots.
func FuzzRecords(f *testing.F) {
	for _, data := range []string{
		`{"owner":"hook","view":{"pids":1,"mounts":2,"at":3},"dirs":[{"path":"net"},{"path":"net/net1","scratch":true}],"sockets":[{"root":"/r","rel":"a/b.sock","at":["net/net1/b.sock"],"access":{"method":"acl","user":{"uid":1,"gid":2}}}],"socketDirs":[{"root":"/r","rel":"c","at":"net","access":{"method":"acl","user":{"uid":1,"gid":0}}}],"bundle":"/b/c"}`,
		`{"dirs":[{"path":"../x"}]}`, `{"dirs":[{"path":"a"}],"sockets":[{"root":"/r","rel":"a","at":["a/../../x"]}]}`, `{"ow`, `null`,
		`[{"root":"/r","rel":"a","parent":true},{"root":"/r","rel":"a/b"}]`, `[{"root":"r","rel":"a"}]`, `[{"root":"/r","rel":"."}]`, `[null]`,
		"7 /run/x/c1", "7 x", "8 /run/x/c1", " /a\x00",
		"12 (a) b) S 1 1 1 0 -1 2097152 0 0 0 0 0 0 0 0 20 0 1 0 12345 0", "12 (a S 1", "1 (a) S 0 0 0 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 -5 0",
		"30 25 0:26 /run/containers/c1/net /a rw shared:1 - tmpfs t rw\n", "1 2 0:3 /containers/a/containers/b x\n", "%2F%25%252F",
		"\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x02\x00\x06\x00\xe8\x03\x00\x00\x04\x00\x05\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x05\x00\xff\xff\xff\xff",
	} {
		f.Add([]byte(data), uint32(1000))
	}
	f.Fuzz(func(t *testing.T, data []byte, uid uint32) {
		fuzzRecord(t, data)
		fuzzCreatedDirs(t, data)
		fuzzACL(t, data, uid)
		text := string(data)

		see := hostView{Mounts: 7}
		if bundle := parseBundle(text, see); bundle != "" && (!path.IsAbs(bundle) || text != strconv.FormatUint(see.Mounts, 10)+" "+bundle) {
			t.Errorf("the bundle of %q is %q", text, bundle)
		}
		if seconds, kernel, ok := parseProcStat(text); seconds < 0 || !ok && (seconds != 0 || kernel) {
			t.Errorf("%q was started at %d, %v, %v", text, seconds, kernel, ok)
		}
		alive := map[string]bool{}
		addMountedContainers(data, []byte("/containers/"), alive)
		for id := range alive {
			if strings.ContainsAny(id, "/ \n") || !strings.Contains(text, "/containers/"+id) {
				t.Errorf("%q has %q mounted", text, id)
			}
		}
	})
}

func fuzzRecord(t *testing.T, data []byte) {
	r := decodeRecord(data, "me", "s1", "c1")
	if r.ID != "c1" || r.SandboxID != "s1" || len(r.Files) > 0 {
		t.Errorf("%q decoded to the record %+v", data, r)
	}
	for _, p := range append(mountPoints(&r.Container), pathsOf(r.Dirs)...) {
		if in := filepath.Join("/state/containers/c1", p); !strings.HasPrefix(in, "/state/containers/c1/") {
			t.Errorf("%q leads to %q", data, in)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if again := decodeRecord(text, "else", "s1", "c1"); !sameJSON(again, r) {
		t.Errorf("%q is encoded as %s, which is decoded to %+v", data, text, again)
	}
}

func pathsOf(dirs []edit.Dir) (paths []string) {
	for _, d := range dirs {
		paths = append(paths, d.Path)
	}
	return paths
}

func sameJSON(a, b any) bool {
	x, err1 := json.Marshal(a)
	y, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

func fuzzCreatedDirs(t *testing.T, data []byte) {
	list, err := decodeCreatedDirs(data)
	if err != nil {
		if list != nil || !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v, %v", data, list, err)
		}
		return
	}
	for _, m := range list {
		root := filepath.Clean(m.Root)
		if hostfs.CheckPath(m.Root) != nil || filepath.Join(root, m.Rel) == root || root != "/" && !strings.HasPrefix(filepath.Join(root, m.Rel), root+"/") {
			t.Errorf("%q leads to %q", data, filepath.Join(m.Root, m.Rel))
		}
	}
}

// fuzzACL checks that a user is granted access, and that nobody else gains or loses any.
func fuzzACL(t *testing.T, data []byte, uid uint32) {
	acl, err := decodeACL(data)
	if err != nil {
		return
	}
	if text, err := encodeACL(acl); err != nil || string(text) != string(data) {
		t.Errorf("%x is encoded as %x, %v", data, text, err)
	}
	if !validACL(acl) || uid == aclNoID {
		return
	}
	next, changed := aclWithUser(acl, uid, connectRights)
	if !validACL(next) {
		t.Fatalf("%v becomes %v", acl, next)
	}
	if effectivePermissions(next, aclUser, uid)&connectRights != connectRights {
		t.Errorf("ACL %v does not grant access to user %d", next, uid)
	}
	if again, more := aclWithUser(next, uid, connectRights); more || !changed && !reflect.DeepEqual(acl, next) {
		t.Errorf("%v becomes %v and then %v", acl, next, again)
	}
	for _, e := range acl {
		if e.Tag == aclMask || e.Tag == aclUser && e.ID == uid {
			continue
		}
		if before, after := effectivePermissions(acl, e.Tag, e.ID), effectivePermissions(next, e.Tag, e.ID); before != after {
			t.Errorf("%v becomes %v: %#x %d has %o and then %o", acl, next, e.Tag, e.ID, before, after)
		}
	}
}

// validACL checks the kernel's rule, posix_acl_valid.
func validACL(acl []aclEntry) bool {
	counts := map[uint16]int{}
	last := aclEntry{}
	for _, e := range acl {
		named := e.Tag == aclUser || e.Tag == aclGroup
		if e.Tag < last.Tag || e.Tag == last.Tag && (!named || e.ID <= last.ID) || e.Perm > 7 || named && e.ID == aclNoID || !named && e.ID != aclNoID {
			return false
		}
		counts[e.Tag]++
		last = e
	}
	users, groups := counts[aclUser], counts[aclGroup]
	return counts[aclUserObj] == 1 && counts[aclGroupObj] == 1 && counts[aclOther] == 1 && (users+groups == 0 || counts[aclMask] == 1) &&
		counts[aclUserObj]+users+counts[aclGroupObj]+groups+counts[aclMask]+counts[aclOther] == len(acl)
}

const aclGroup = 0x08

// effectivePermissions returns the permissions of an entry, limited by the mask where it applies.
func effectivePermissions(acl []aclEntry, tag uint16, id uint32) (perm uint16) {
	mask := uint16(7)
	for _, e := range acl {
		if e.Tag == aclMask {
			mask = e.Perm
		}
		if e.Tag == tag && e.ID == id {
			perm = e.Perm
		}
	}
	if tag == aclUserObj || tag == aclOther {
		return perm
	}
	return perm & mask
}
