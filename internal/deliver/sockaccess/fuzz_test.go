// SPDX-License-Identifier: Apache-2.0

package sockaccess

import (
	"path"
	"reflect"
	"testing"
)

// A user is granted access, and nobody else gains or loses any. A record of another socket is not trusted.
func FuzzRecords(f *testing.F) {
	for _, data := range []string{
		"\x02\x00\x00\x00\x01\x00\x07\x00\xff\xff\xff\xff\x02\x00\x06\x00\xe8\x03\x00\x00\x04\x00\x05\x00\xff\xff\xff\xff\x10\x00\x04\x00\xff\xff\xff\xff\x20\x00\x05\x00\xff\xff\xff\xff",
		`{"socket":"/run/vsw/a.sock","file":{"device":1,"inode":2},"holders":[{"container":"sandboxes/s1/c1.container","method":"acl","user":{"uid":1,"gid":2}}]}`,
		`{"socket":"/run/vsw/../../etc/x"}`, `{"socket":"a"}`, `{"so`,
	} {
		f.Add([]byte(data), uint32(1000))
	}
	f.Fuzz(func(t *testing.T, data []byte, uid uint32) {
		if s, err := records("").Decode("f", data); err == nil && (!path.IsAbs(s.Socket) || path.Clean(s.Socket) != s.Socket) {
			t.Errorf("%q is decoded to the record of socket %q", data, s.Socket)
		}
		fuzzACL(t, data, uid)
	})
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
