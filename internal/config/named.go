// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"path"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/base/schema"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// NamedSocket is a host socket that a container requests by its name.
type NamedSocket struct {
	// Path is the socket's path on the host.
	Path string
	// At is the socket's path in a container. By default it is only at DefaultAt.
	At string
	// Create is the treatment of a container that requests the socket before it exists.
	Create SocketCreation
}

// SocketCreation is the treatment of a container that requests a socket before it exists.
type SocketCreation string

// The container is denied, or created and given the socket once it exists.
const (
	SocketRefuse SocketCreation = "refuse"
	SocketWait   SocketCreation = "wait"
)

// namedSocketDir is the directory in a container that has a directory for each named socket.
const namedSocketDir = "/var/run/jackfield/named"

// DefaultAt returns the path at which a container always has the named socket, in addition to At.
func (n *NamedSocket) DefaultAt(name string) string {
	return path.Join(namedSocketDir, name, path.Base(cmp.Or(n.At, n.Path)))
}

// readNamedSocket decodes a socket that containers request by name, which is the key.
func (d decoder) readNamedSocket(at string, value *jsontree.Node) (NamedSocket, bool) {
	n := NamedSocket{Create: SocketRefuse}
	ok := d.ReadObject(at, value,
		schema.Key("path", d.Text(&n.Path, namedSocketPath)),
		schema.Key("at", d.Text(&n.At, namedSocketAt)),
		schema.Key("create", schema.Enum(d.Decoder, &n.Create, SocketRefuse, SocketWait)),
	)
	if ok {
		d.checkNamedSocket(at, value, &n)
	}
	return n, ok
}

// checkNamedSocket checks rules that involve several keys, and sets the default of at.
func (d decoder) checkNamedSocket(field string, value *jsontree.Node, n *NamedSocket) {
	if n.Path == "" {
		d.AddKeyFault(jsontree.JoinPath(field, "path"), value, "nothing",
			"a named socket has a path, where its server creates it on the host")
		return
	}
	inside := n.DefaultAt(value.Key)
	if len(inside) > hostfs.MaxSocketPath {
		d.AddKeyFault(field, value, diag.Quote(value.Key),
			fmt.Sprintf("a socket's path has at most %d bytes; in a container it would be %s", hostfs.MaxSocketPath,
				diag.Quote(inside)))
	}
	n.At = cmp.Or(n.At, inside)
	if n.At != inside && contains(path.Dir(namedSocketDir), n.At) {
		d.AddKeyFault(jsontree.JoinPath(field, "at"), value, diag.Quote(n.At),
			"Jackfield's own directory in a container is for "+diag.Quote(inside)+", where the socket is anyway")
	}
}

// socketName returns the reason why a name is invalid for a socket, or "". The name becomes part of
// an environment variable.
func socketName(s string) string {
	return require(name.IsLabel(s),
		"the name of a socket has 1 to 63 lower-case letters, digits and '-', and begins and ends with a "+
			"letter or digit")
}

// namedSocketPath requires a path outside of directories where the system keeps files, and of
// directories where any user can create a socket.
func namedSocketPath(s string) string {
	tree, dir := reserved.Tree(s), path.Dir(s)
	return cmp.Or(socketPath(s),
		require(tree == "", "sockets are not delivered from "+tree),
		require(dir != "/tmp" && dir != "/var/tmp", "any user of the host can create a socket in "+dir),
		require(dir != "/", "must be a path in a directory below /"))
}

// namedSocketAt requires a path whose directory can be mounted in a container without hiding files.
func namedSocketAt(s string) string {
	dir := reserved.DirInContainer(path.Dir(s))
	return cmp.Or(socketPath(s),
		require(dir == "", "the directory of the socket is mounted in the container, where it would hide what the "+
			"image or the system has in "+dir))
}
