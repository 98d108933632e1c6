// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// ContainerDir is the directory in a container with everything that Jackfield delivers.
const ContainerDir = "/var/run/jackfield"

// socket is the socket of one attachment, or a named socket, with its entry in the container's view.
type socket struct {
	viewEntry
	path    string // as device-info or the configuration has it
	own     string // where applications expect it in the container
	field   string // of the path, in device-info or the configuration
	dialect config.Dialect
	await   bool // it may appear after the container was created

	// What deliverSocket finds out.
	origin edit.Origin
	at     socketPath  // of path
	access edit.Access // of the container's user
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
		return &socket{viewEntry: viewEntry{att: a, creator: d.CreatedBy(string(v.Mode))}, path: v.Path, own: v.Path, field: "vhost-user.path", dialect: d}, true
	case deviceinfo.TypeMemif:
		m := a.Info.Memif
		return &socket{viewEntry: viewEntry{att: a, creator: d.CreatedBy(string(m.Role))}, path: m.Path, own: m.Path, field: "memif.path", dialect: d}, true
	}
	return nil, false
}

// isMemif reports whether the socket is one of memif, not of vhost-user.
func (s *socket) isMemif() bool { return s.named == "" && s.att.Info.Type == deviceinfo.TypeMemif }

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
	if s.named != "" {
		return path.Join("named", s.named)
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
func (p *planner) deliverSocket(s *socket, origin edit.Origin, item *Item) error {
	s.origin = origin
	s.origin.Field = s.field
	before := p.b.Changes()
	if err := p.addSocket(s, item); err != nil {
		return err
	}
	if s.note != "" {
		item.Notes = append(item.Notes, s.note)
	}
	item.Outcome = Injected // also if the container has the directory of another socket already
	if s.att.Claimed != nil && p.b.Changes() == before {
		item.Outcome = Present // the driver had the runtime mount it
	}
	p.view = append(p.view, s.viewEntry)
	return nil
}

// addSocket adds a socket: below ContainerDir, see mountPoint, and at its own path where that is
// safe. The directory of a host-created socket is read-only.
func (p *planner) addSocket(s *socket, item *Item) (err error) {
	if s.isAbstract() {
		s.containerPath = s.path
		return nil
	}
	if s.inContainer() {
		return p.checkContainerPath(s, item)
	}
	if s.named != "" {
		s.at, err = p.namedSocketPath(s)
	} else {
		s.at, err = p.socketPath(s.path)
	}
	if err != nil {
		return s.fieldError(err)
	}
	if err := p.grantSocket(s, item); err != nil {
		if !p.hasSocket(s.at) {
			return err
		}
		item.Notes = append(item.Notes, "it was granted when the container got it")
	}
	s.origin.Rule = item.Rule
	s.containerPath = path.Join(ContainerDir, s.mountPoint(), path.Base(s.own))
	if len(s.containerPath) > hostfs.MaxSocketPath {
		return s.fieldError(fmt.Errorf("the path in the container, %q, has %d bytes; a UNIX socket's path has at most %d: %w",
			s.containerPath, len(s.containerPath), hostfs.MaxSocketPath, errdefs.ErrInvalidArgument))
	}
	if s.creator == config.SideHost {
		if err := p.checkHostSocket(s, item); err != nil {
			return s.fieldError(err)
		}
	}
	return p.placeSocket(s, item)
}

// hasSocket reports whether a running container has the socket.
func (p *planner) hasSocket(at socketPath) bool {
	return p.req.HasSocket != nil && p.req.HasSocket(at.canonical, at.rel)
}

// placeSocket adds the mounts of a socket that policy has granted.
func (p *planner) placeSocket(s *socket, item *Item) (err error) {
	if s.access, err = p.socketAccess(); err != nil {
		return s.fieldError(err)
	}
	var dir edit.SocketDir
	if s.creator == config.SideApplication {
		if dir, err = p.applicationDir(s, item); err != nil {
			return err
		}
	}
	switch {
	case p.opts.Staged():
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
	p.b.Mounts(func(m *edit.Mount) bool {
		covered = covered || m.Destination != "/" && edit.IsUnder(m.Destination, s.path)
		return !covered
	})
	switch {
	case covered:
	case p.req.FromManifest && s.att.Claimed != nil:
		item.Notes = append(item.Notes, "the claim's driver has to have the runtime mount the directory of the socket (CDI), which a manifest does not show")
	default:
		return s.fieldError(fmt.Errorf("dialect %q says %q is a path in the container, but the container has no mount there; "+
			"mount its directory, or choose another dialect: %w", s.dialect.Use, s.path, errdefs.ErrFailedPrecondition))
	}
	s.containerPath, s.ownPath = s.path, s.path
	return nil
}

// checkHostSocket checks on a descriptor that a path below its root is a socket, or that it may appear
// later. It follows no symlink.
func (p *planner) checkHostSocket(s *socket, item *Item) error {
	file := path.Join(s.at.canonical, s.at.rel)
	st, err := p.host.StatNoSymlinks(file)
	switch missing := errdefs.IsNotFound(err); {
	case missing && p.awaitsSockets:
		return nil
	case missing && s.await && p.opts.Staged():
		item.Notes = append(item.Notes, "the socket does not exist yet; the container gets it once its server creates it")
		return nil
	case missing && s.await:
		return fmt.Errorf("%w; its server has not created this socket yet, and create: wait needs sockets.staging: mount, but sockets are not staged here", err)
	case missing && s.named != "":
		return fmt.Errorf("%w; its server has not created this socket yet: start the server, or have containers wait with create: wait", err)
	case missing:
		return fmt.Errorf("%w; the vswitch has not created this socket yet: check its port", err)
	case err != nil:
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%q is a %s: must be a socket: %w", file, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	return nil
}

// socketAccess returns how the container's user gets access to sockets.
func (p *planner) socketAccess() (edit.Access, error) {
	a := edit.Access{Method: edit.AccessMethod(p.cfg.Sockets.Access), Label: p.cfg.Sockets.SELinuxLabel}
	u, err := p.hostUser()
	if u != nil {
		a.User = &edit.User{UID: u.UID, GID: u.GID}
	}
	return a, err
}

// source names the file and field that request the socket, for the staging directory's messages.
func (s *socket) source() string { return s.origin.File + ": " + s.field }
