// SPDX-License-Identifier: Apache-2.0

package staging

import "golang.org/x/sys/unix"

// Access is how a container's user gets at a socket that the host side made.
type Access struct {
	User *User `json:"user,omitempty"` // nil when nobody says who it is
}

// User is a user and a group of the host.
type User struct {
	UID uint32 `json:"uid"`
	GID uint32 `json:"gid"`
}

// apply lets the user at the socket.
func (a *Access) apply(int, *unix.Stat_t) error { return nil }
