// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Container is what one container needs on the host. Its paths are relative to the container's
// staging directory unless stated otherwise.
type Container struct {
	ID         string      `json:"-"`
	SandboxID  string      `json:"-"`
	Files      []File      `json:"-"`
	Dirs       []Dir       `json:"dirs,omitempty"`
	Sockets    []Socket    `json:"sockets,omitempty"`    // that the host creates
	SocketDirs []SocketDir `json:"socketDirs,omitempty"` // in which the application creates its own
	// Bundle is the host path of the container's bundle, "" when it is unknown.
	Bundle string `json:"bundle,omitempty"`
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

func (s *Socket) hostPath() string { return filepath.Join(s.Root, s.Rel) }

// SocketDir is a directory below a socket root in which an application creates its socket. It
// belongs to one sandbox: another sandbox gets neither it nor a directory above or below it.
type SocketDir struct {
	Root string `json:"root"`           // canonical host path of the socket root
	Rel  string `json:"rel"`            // below it, at least one element
	At   string `json:"at,omitempty"`   // where it is bound, one of Dirs; "" for nowhere
	From string `json:"from,omitempty"` // as in Socket
	// Access has the user who owns a directory that is created, nil for this process's user, and
	// the method by which the user gets access to the sandbox's own directory when that exists.
	Access Access `json:"access,omitzero"`
	// Granted means that policy grants everything below the directory. Without it, only a
	// directory that was created for the sandbox is delivered; any other is denied with
	// Refusal.
	Granted bool  `json:"-"`
	Refusal error `json:"-"`
}

// validate refuses paths that lead out of the staging directory.
func (c *Container) validate() error {
	if err := checkIDs(c.SandboxID, c.ID); err != nil {
		return err
	}
	for _, f := range c.Files {
		if f.Name == "" || f.Name[0] == '.' || strings.ContainsRune(f.Name, '/') {
			return c.invalid("file name", f.Name)
		}
	}
	return c.validatePlaces()
}

func (c *Container) invalid(what, name string) error {
	return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("stage container %q: invalid %s %q", c.ID, what, name))
}

// validatePlaces refuses directories and places of sockets outside of the staging directory.
func (c *Container) validatePlaces() error {
	for _, d := range c.Dirs {
		if !isLocal(d.Path) {
			return c.invalid("directory", d.Path)
		}
	}
	for _, k := range c.Sockets {
		if !isLocal(k.Rel) {
			return c.invalid("socket", k.Rel)
		}
		for _, at := range k.At {
			if !isLocal(at) || !c.HasDir(filepath.Dir(at)) {
				return c.invalid("place of a socket", at)
			}
		}
	}
	for _, d := range c.SocketDirs {
		if d.At != "" && !c.HasDir(d.At) {
			return c.invalid("place of a socket directory", d.At)
		}
	}
	return nil
}

// HasDir reports whether a directory is one of the container's.
func (c *Container) HasDir(path string) bool {
	return slices.ContainsFunc(c.Dirs, func(d Dir) bool { return d.Path == path })
}

// isLocal reports whether a path is clean and does not leave the directory it begins in.
func isLocal(p string) bool {
	return p != "" && p != "." && filepath.Clean(p) == p && filepath.IsLocal(p) && strings.IndexByte(p, 0) < 0
}

// mountPoints returns the places in the staging directory that can have mounts. A place that
// contains others comes before them.
func (c *Container) mountPoints() []string {
	var points []string
	for _, d := range c.Dirs {
		if d.Scratch {
			points = append(points, d.Path)
		}
	}
	for _, d := range c.SocketDirs {
		if d.At != "" {
			points = append(points, d.At)
		}
	}
	for _, k := range c.Sockets {
		for _, at := range k.At {
			if !slices.Contains(points, filepath.Dir(at)) {
				points = append(points, at)
			}
		}
	}
	return points
}

func checkIDs(sandboxID, containerID string) error {
	return errors.Join(checkID("container", containerID), checkID("sandbox", sandboxID))
}

// checkID refuses an ID that is no safe file name.
func checkID(what, id string) error {
	if err := hostfs.CheckID(id); err != nil {
		return fmt.Errorf("%s ID: %w", what, err)
	}
	return nil
}
