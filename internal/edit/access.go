// SPDX-License-Identifier: Apache-2.0

package edit

// AccessMethod is how a container's user is granted access to a socket of the host.
type AccessMethod string

// No method uses the mode bits of other users: a socket that one container can use is not for
// every container.
const (
	ByACL   AccessMethod = "acl"   // an entry in the socket's ACL; ByGroup on a file system without ACLs
	ByGroup AccessMethod = "group" // the user's group becomes the socket's group
	ByOwner AccessMethod = "owner" // the user becomes the socket's owner
)

// Access is the access of a container's user to a socket of the host. The zero value leaves the
// socket unchanged.
type Access struct {
	Method AccessMethod `json:"method,omitempty"`
	User   *User        `json:"user,omitempty"`  // nil when it is unknown
	Label  string       `json:"label,omitempty"` // SELinux label, where SELinux is on; "" keeps the socket's
}

// User is a user and a group of the host.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}
