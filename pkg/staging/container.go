// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Container is what one container needs on the host. Paths in it are relative to
// the container's staging directory unless said otherwise.
type Container struct {
	ID         string      `json:"-"`
	SandboxID  string      `json:"-"`
	Files      []File      `json:"-"`
	Dirs       []Dir       `json:"dirs,omitempty"`
	Sockets    []Socket    `json:"sockets,omitempty"`    // that the host makes
	SocketDirs []SocketDir `json:"socketDirs,omitempty"` // in which the application makes its own
	// Bundle is the directory of the container's bundle, where that is known: a host
	// path.
	Bundle string `json:"bundle,omitempty"`
}

// File is a file of the staging directory, name and content.
type File struct {
	Name string
	Data []byte
}

// Dir is a directory of the staging directory.
type Dir struct {
	Path string `json:"path"`
	// Scratch makes it a small file system of the container's own that it can
	// write; everything else there is read-only. Only where mounts are staged.
	Scratch bool `json:"scratch,omitempty"`
}

// Socket is a socket that the host side makes and makes anew.
type Socket struct {
	Root   string   `json:"root"` // canonical host path of the socket root
	Rel    string   `json:"rel"`  // below it
	At     []string `json:"at"`   // where it is bound; each in one of Dirs
	Access Access   `json:"access,omitzero"`
	From   string   `json:"from,omitempty"` // the file and field that ask for it, for messages
}

func (s *Socket) path() string { return filepath.Join(s.Root, s.Rel) }

// SocketDir is the directory below a socket root in which an application makes
// its socket. It belongs to one sandbox: another one that asks for it, or for a
// directory above or below it, is refused.
type SocketDir struct {
	Root string `json:"root"`           // canonical host path of the socket root
	Rel  string `json:"rel"`            // below it, at least one element
	At   string `json:"at,omitempty"`   // where it is bound, one of Dirs; "" for nowhere
	From string `json:"from,omitempty"` // as in Socket
	UID  int    `json:"uid"`            // owner of what is made; -1 leaves it to the process that makes it
	GID  int    `json:"gid"`            // likewise
	// Way is how that user is let at a directory of the sandbox's own that is there
	// already; "" leaves it as it is.
	Way Way `json:"way,omitempty"`
	// Granted says that policy grants everything below the directory. Without that, only
	// a directory that was created for the sandbox is handed over, and any other is
	// refused with Refusal.
	Granted bool  `json:"-"`
	Refusal error `json:"-"`

	found claims.Identity // of the directory that makeSocketDir opened
}

// record is what is written down of a container before anything is made for it.
type record struct {
	Owner string `json:"owner,omitempty"` // whose container it is: Options.Owner
	See   view   `json:"see,omitzero"`    // what its maker saw of the host, in a shared state directory
	Container
}

const containerSuffix = ".container"

func (s *Store) recordFile(sandboxID, containerID string) string {
	return filepath.Join(s.sandboxes(), sandboxID, containerID+containerSuffix)
}

// readRecord reads a container's record. An empty one, or one cut short by a
// crash, is a container of this owner without anything that is known.
func (s *Store) readRecord(sandboxID, containerID string) record {
	data, err := os.ReadFile(s.recordFile(sandboxID, containerID))
	if err != nil {
		data = nil
	}
	return decodeRecord(data, s.opts.Owner, sandboxID, containerID)
}

// decodeRecord reads a record; what is none, or leads out of the container's directory,
// is as an empty one: what is removed by it lies there.
func decodeRecord(data []byte, owner, sandboxID, containerID string) record {
	unknown := record{Owner: owner, Container: Container{ID: containerID, SandboxID: sandboxID}}
	var r record
	if json.Unmarshal(data, &r) != nil {
		return unknown
	}
	r.ID, r.SandboxID = containerID, sandboxID
	if r.checkPlaces() != nil {
		return unknown
	}
	return r
}

// check refuses what would leave the staging directory.
func (c *Container) check() error {
	if err := checkID("container", c.ID); err != nil {
		return err
	}
	if err := checkID("sandbox", c.SandboxID); err != nil {
		return err
	}
	for _, f := range c.Files {
		if f.Name == "" || f.Name[0] == '.' || strings.ContainsRune(f.Name, '/') {
			return c.bad("file name", f.Name)
		}
	}
	return c.checkPlaces()
}

func (c *Container) bad(what, name string) error {
	return fmt.Errorf("make staging of container %q: %s %q: %w", c.ID, what, name, errdefs.ErrInvalidArgument)
}

// checkPlaces refuses directories and places of sockets outside of the staging
// directory.
func (c *Container) checkPlaces() error {
	for _, d := range c.Dirs {
		if !local(d.Path) {
			return c.bad("directory", d.Path)
		}
	}
	for _, k := range c.Sockets {
		if !local(k.Rel) {
			return c.bad("socket", k.Rel)
		}
		for _, at := range k.At {
			if !local(at) || !c.HasDir(filepath.Dir(at)) {
				return c.bad("place of a socket", at)
			}
		}
	}
	for _, d := range c.SocketDirs {
		if d.At != "" && !c.HasDir(d.At) {
			return c.bad("place of a socket directory", d.At)
		}
	}
	return nil
}

// HasDir reports whether a directory is one of the container's.
func (c *Container) HasDir(path string) bool {
	return slices.ContainsFunc(c.Dirs, func(d Dir) bool { return d.Path == path })
}

// local reports whether a path is clean and stays where it begins.
func local(p string) bool {
	return p != "" && p != "." && filepath.Clean(p) == p && filepath.IsLocal(p) && strings.IndexByte(p, 0) < 0
}

// points are the places in the staging directory that can have mounts, those that
// hold others first.
func (c *Container) points() []string {
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

// checkID refuses an ID that could leave its directory.
func checkID(what, id string) error {
	if err := hostfs.CheckID(id); err != nil {
		return fmt.Errorf("%s ID: %w", what, err)
	}
	return nil
}

// isSocket is nil for a descriptor of a socket.
func isSocket(fd int, name string) (unix.Stat_t, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return st, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, wantType(st.Mode, unix.S_IFSOCK, name)
}
