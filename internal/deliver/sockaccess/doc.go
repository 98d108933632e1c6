// SPDX-License-Identifier: Apache-2.0

// Package sockaccess grants the users of containers access to sockets of the host, and revokes it.
//
// Each socket with grants has one record, which is written before the socket is changed:
//
//	<dir>/<digit>/<name>.json   the changes at one socket, and the containers that need them
//	<dir>/<digit>/              locked (flock) while one of its records changes
//
// The adapters of a node share the records. A grant ends with the last recorded container that needs it.
// A change that no record has is never undone, so an administrator's own ACL entries stay.
package sockaccess
