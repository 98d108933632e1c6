// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
)

// Container has the files, directories and sockets that one container needs on the host. Its paths are relative to the
// container's staging directory unless stated otherwise.
type Container struct {
	ID         string      `json:"-"`
	SandboxID  string      `json:"-"`
	Files      []File      `json:"-"`
	Dirs       []Dir       `json:"dirs,omitempty"`
	Sockets    []Socket    `json:"sockets,omitempty"`    // that the host creates
	SocketDirs []SocketDir `json:"socketDirs,omitempty"` // in which the application creates its own
	// Bundle is the host path of the container's bundle, "" when it is unknown.
	Bundle string `json:"bundle,omitempty"`
	// Label is the SELinux label of the container's directory, where SELinux is on; "" keeps the inherited one.
	Label string `json:"label,omitempty"`
	// Successor means that an earlier container of this name in the sandbox has ended.
	Successor bool `json:"-"`
}

// File is a file of the staging directory, name and content.
type File struct {
	Name string
	Data []byte
}

// Dir is a directory of the staging directory.
type Dir struct {
	Path string `json:"path"`
	// Scratch, in ModeMount, makes it a small file system of its own that the container can
	// write. Everything else in the staging directory is read-only.
	Scratch bool `json:"scratch,omitempty"`
}

// Socket is a socket that the host, for example a vswitch, creates and re-creates.
type Socket struct {
	Root   string   `json:"root"` // canonical host path of the socket root
	Rel    string   `json:"rel"`  // below it
	At     []string `json:"at"`   // where it is bound, each in one of Dirs
	Access Access   `json:"access,omitzero"`
	From   string   `json:"from,omitempty"` // file and field that request it, for messages
	// Await, in ModeMount, accepts a socket that does not exist yet: it is bound once it does.
	Await bool `json:"await,omitempty"`
}

// HostPath returns the host path of the socket.
func (s *Socket) HostPath() string { return filepath.Join(s.Root, s.Rel) }

// SocketDir is a directory below a socket root in which an application creates its socket. It
// belongs to one sandbox: another sandbox gets neither it nor a directory above or below it.
type SocketDir struct {
	Root string `json:"root"`           // canonical host path of the socket root
	Rel  string `json:"rel"`            // below it, at least one element
	At   string `json:"at,omitempty"`   // where it is bound, one of Dirs; "" for nowhere
	From string `json:"from,omitempty"` // as in Socket
	// Access has the user that owns a directory that is created, nil for this process's user, and
	// the method by which the user gets access to the sandbox's own directory when that exists.
	Access Access `json:"access,omitzero"`
	// Granted means that policy grants everything below the directory. Without it, only a
	// directory that was created for the sandbox is delivered; any other is denied with
	// Refusal.
	Granted bool  `json:"-"`
	Refusal error `json:"-"`
}

// HasDir reports whether a directory is one of the container's.
func (c *Container) HasDir(path string) bool {
	return slices.ContainsFunc(c.Dirs, func(d Dir) bool { return d.Path == path })
}

// IsSame reports whether two socket directories are the same, at the same place.
func (d SocketDir) IsSame(o SocketDir) bool {
	return d.Root == o.Root && filepath.Clean(d.Rel) == filepath.Clean(o.Rel) && d.At == o.At
}

// ContainersDir returns the directory in stateDir that has the staging directories of all
// containers.
func ContainersDir(stateDir string) string { return path.Join(stateDir, "containers") }

// ContainerDir returns the directory in stateDir that is mounted into a container at
// /var/run/jackfield.
func ContainerDir(stateDir, containerID string) string {
	return filepath.Join(ContainersDir(stateDir), containerID)
}

// WithOrigin puts the file and field that request something before an error.
func WithOrigin(from string, err error) error {
	if err == nil || from == "" {
		return err
	}
	return fmt.Errorf("%s: %w", from, err)
}
