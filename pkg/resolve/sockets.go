// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/attachment"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/staging"
)

const (
	// ContainerDir is the directory in a container with everything that Jackfield delivers.
	ContainerDir = "/var/run/jackfield"
	// sunPath is the longest path that a UNIX socket address holds, without its NUL.
	sunPath = 107
)

// socket is the socket of one attachment, or a named socket.
type socket struct {
	att     *attachment.Attachment // empty for a named socket
	name    string                 // of a named socket; "" for one of an attachment
	path    string                 // as device-info or the configuration has it
	own     string                 // where applications expect it in the container
	field   string                 // of the path, in device-info or the configuration
	dialect config.Dialect
	creator config.Side // SideHost or SideApplication

	// What deliverSocket finds out.
	origin edits.Origin
	at     socketPath     // of path
	access staging.Access // of the container's user
	await  bool           // it may appear after the container was created
	entry  viewEntry
}

// socketOf returns the socket that an attachment's device-info describes, read in
// the dialect that the configuration gives its network or resource.
func (p *planner) socketOf(a *attachment.Attachment) (*socket, bool) {
	driver := ""
	if a.Network == "" && a.Claimed != nil {
		driver = a.Claimed.Driver
	}
	d := p.cfg.Dialect(a.Network, a.Resource, driver)
	switch a.Info.Type {
	case deviceinfo.TypeVhostUser:
		v := a.Info.VhostUser
		return &socket{att: a, path: v.Path, own: v.Path, field: "vhost-user.path", dialect: d, creator: d.CreatedBy(string(v.Mode))}, true
	case deviceinfo.TypeMemif:
		m := a.Info.Memif
		return &socket{att: a, path: m.Path, own: m.Path, field: "memif.path", dialect: d, creator: d.CreatedBy(string(m.Role))}, true
	}
	return nil, false
}

// isMemif reports whether the socket is one of memif, not of vhost-user.
func (s *socket) isMemif() bool { return s.name == "" && s.att.Info.Type == deviceinfo.TypeMemif }

// isAbstract reports whether the socket is in the pod's network namespace, so that nothing is
// mounted for it.
func (s *socket) isAbstract() bool { return s.isMemif() && s.att.Info.Memif.Abstract() }

// inContainer reports whether nothing of the host is delivered: the socket is abstract, or its path
// is one in the container.
func (s *socket) inContainer() bool {
	return s.isAbstract() || s.dialect.PathSide() == config.SideContainer
}

// mountPoint is the socket's directory below ContainerDir, named for the attachment's interface. The directory
// of a device without a network is named like the device plugin's files, RESOURCE-DEVICE, or like its
// claim and request.
func (s *socket) mountPoint() string {
	if s.name != "" {
		return path.Join("named", s.name)
	}
	name := s.att.IfName
	if s.att.Network == "" && s.att.Claimed != nil {
		name = strings.ReplaceAll(s.att.Claimed.Name(), "/", "-")
	} else if name == "" {
		parts := slices.DeleteFunc([]string{s.att.Network, s.att.Resource, s.att.DeviceID}, func(p string) bool { return p == "" })
		name = strings.ReplaceAll(strings.Join(parts, "-"), "/", "-")
	}
	return path.Join("net", name)
}

// fieldError puts the file and field of the path in front.
func (s *socket) fieldError(err error) error {
	return &RequestError{File: s.origin.File, Field: s.field, Err: err}
}

// deliverSocket adds a socket and its entry in the container's view.
func (p *planner) deliverSocket(s *socket, origin edits.Origin, item *Item) error {
	s.origin, s.entry = origin, viewEntry{att: s.att, creator: s.creator}
	s.origin.Field = s.field
	before := p.b.Changes()
	if err := p.addSocket(s, item); err != nil {
		return err
	}
	if s.entry.note != "" {
		item.Notes = append(item.Notes, s.entry.note)
	}
	item.Outcome = Injected // also if the container has the directory of another socket already
	if s.att.Claimed != nil && p.b.Changes() == before {
		item.Outcome = Present // the driver had the runtime mount it
	}
	p.view = append(p.view, s.entry)
	return nil
}

// addSocket adds a socket: at net/<ifName> below ContainerDir, and at the
// device-info's own path where that is safe. The directory of a host-created socket
// is read-only.
func (p *planner) addSocket(s *socket, item *Item) (err error) {
	if s.isAbstract() {
		s.entry.socket = s.path
		return nil
	}
	if s.inContainer() {
		return p.checkContainerPath(s, item)
	}
	if s.at, err = p.socketPath(s.path); err != nil {
		return s.fieldError(err)
	}
	if err := p.grantSocket(s, item); err != nil {
		if kept, _ := p.keeps(s.att); !kept { // its path was resolved before: no error
			return err
		}
		item.Notes = append(item.Notes, "it was granted when the container got it")
	}
	s.origin.Rule = item.Rule
	if err := s.setPathInContainer(); err != nil {
		return err
	}
	if s.creator == config.SideHost {
		if err := checkSocket(p.host, s.at, "the vswitch has not created this socket yet: check its port"); err != nil && !(p.awaitsSockets && errdefs.IsNotFound(err)) {
			return s.fieldError(err)
		}
	}
	return p.placeSocket(s, item)
}

// setPathInContainer sets where the container has the socket.
func (s *socket) setPathInContainer() error {
	inside := path.Join(ContainerDir, s.mountPoint(), path.Base(s.own))
	if len(inside) > sunPath {
		return s.fieldError(fmt.Errorf("the path in the container, %q, has %d bytes; a UNIX socket's path has at most %d: %w",
			inside, len(inside), sunPath, errdefs.ErrInvalidArgument))
	}
	s.entry.socket = inside
	return nil
}

// placeSocket adds the mounts of a socket that policy has granted.
func (p *planner) placeSocket(s *socket, item *Item) (err error) {
	if s.access, err = p.socketAccess(); err != nil {
		return s.fieldError(err)
	}
	var dir staging.SocketDir
	if s.creator == config.SideApplication {
		if dir, err = p.applicationDir(s, item); err != nil {
			return err
		}
	}
	switch {
	case p.staged():
		return p.stageSocket(s, dir)
	case s.creator == config.SideApplication:
		p.staging().SocketDirs = append(p.staging().SocketDirs, dir)
		return p.bindSocketDir(s, "rw")
	}
	return p.bindHostSocket(s)
}

// checkContainerPath checks that the container has a mount for a socket whose device-info gives the
// path in the container. The writer of the device-info mounts the directory there.
func (p *planner) checkContainerPath(s *socket, item *Item) error {
	covered := false
	p.b.Mounts(func(m *edits.Mount) bool {
		covered = covered || m.Destination != "/" && edits.IsUnder(m.Destination, s.path)
		return !covered
	})
	switch {
	case covered:
	case p.explains && p.req.FromManifest && s.att.Claimed != nil:
		item.Notes = append(item.Notes, "the claim's driver has to have the runtime mount the directory of the socket (CDI), which a manifest does not show")
	default:
		return s.fieldError(fmt.Errorf("dialect %q says %q is a path in the container, but the container has no mount there; "+
			"mount its directory, or choose another dialect: %w", s.dialect.Use, s.path, errdefs.ErrFailedPrecondition))
	}
	s.entry.socket, s.entry.ownPath = s.path, s.path
	return nil
}

// checkSocket checks on a descriptor that a path below its root is a socket. It follows no symlink. The error
// about a missing socket ends in the hint.
func checkSocket(host hostfs.Root, at socketPath, hint string) error {
	file := path.Join(at.canonical, at.rel)
	st, err := host.StatNoSymlinks(file)
	if err != nil {
		if errdefs.IsNotFound(err) {
			return fmt.Errorf("%w; %s", err, hint)
		}
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%q is a %s, want a socket: %w", file, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	return nil
}

// socketAccess returns how the container's user gets access to sockets.
func (p *planner) socketAccess() (staging.Access, error) {
	a := staging.Access{Method: staging.AccessMethod(p.cfg.Sockets.Access), Label: p.cfg.Sockets.SELinuxLabel}
	u, err := p.hostUser()
	if u != nil {
		a.User = &staging.User{UID: u.UID, GID: u.GID}
	}
	return a, err
}

// source names the file and field that request the socket, for the staging directory's messages.
func (s *socket) source() string { return s.origin.File + ": " + s.field }
