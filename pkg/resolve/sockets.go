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
	// ContainerDir is where a container finds what Jackfield gave it.
	ContainerDir = "/var/run/jackfield"
	// sunPath is the longest path a UNIX socket address holds, without its NUL.
	sunPath = 107
)

// socket is the socket of one attachment, on its way into a container.
type socket struct {
	att     *attachment.Attachment
	path    string // as device-info has it
	field   string // of the path, in device-info
	dialect config.Dialect
	creator config.Side // SideHost or SideApplication
}

// inContainer reports whether nothing of the host is handed over: the socket lives in
// the pod's network namespace, or its path is one in the container.
func (s *socket) inContainer() bool {
	m := s.att.Info.Memif
	return s.att.Info.Type == deviceinfo.TypeMemif && m.Abstract() || s.dialect.PathSide() == config.SideContainer
}

// socketOf is the socket that an attachment's device-info describes, read in
// the dialect that the configuration gives its network or resource.
func (p *planner) socketOf(a *attachment.Attachment) (socket, bool) {
	d := p.cfg.Dialect(a.Network, a.Resource)
	switch a.Info.Type {
	case deviceinfo.TypeVhostUser:
		v := a.Info.VhostUser
		return socket{att: a, path: v.Path, field: "vhost-user.path", dialect: d, creator: d.CreatedBy(string(v.Mode))}, true
	case deviceinfo.TypeMemif:
		m := a.Info.Memif
		return socket{att: a, path: m.Path, field: "memif.path", dialect: d, creator: d.CreatedBy(string(m.Role))}, true
	}
	return socket{}, false
}

// addSocket delivers a socket: at net/<ifName> below ContainerDir, and at the
// device-info's own path where that is safe. The directory of a host-created socket
// is read-only.
func (p *planner) addSocket(s socket, origin edits.Origin, item *Item) (viewEntry, error) {
	v := viewEntry{att: s.att, creator: s.creator}
	origin.Field = s.field
	if m := s.att.Info.Memif; s.att.Info.Type == deviceinfo.TypeMemif && m.Abstract() {
		// It lives in the pod's network namespace: nothing to mount.
		v.socket = s.path
		return v, nil
	}
	if s.dialect.PathSide() == config.SideContainer {
		return p.containerSocket(s, v, origin)
	}
	at, err := p.place(s.path)
	if err != nil {
		return v, fieldError(origin, err)
	}
	if err := p.grantSocket(s.att, at, item); err != nil {
		if kept, _ := p.keeps(s.att); !kept { // its place is known: no error
			return v, err
		}
		item.Notes = append(item.Notes, "it was granted when the container got it")
	}
	origin.Rule = item.Rule
	inside := path.Join(ContainerDir, s.point(), path.Base(s.path))
	if len(inside) > sunPath {
		return v, fieldError(origin, fmt.Errorf("the path in the container, %q, has %d bytes; a UNIX socket's path has at most %d: %w",
			inside, len(inside), sunPath, errdefs.ErrInvalidArgument))
	}
	if s.creator == config.SideHost {
		// A container that runs gets a socket that is not there yet when it comes.
		if err := checkSocket(p.host, at.canonical, at.rel); err != nil && !(p.running && errdefs.IsNotFound(err)) {
			return v, fieldError(origin, err)
		}
	}
	v.socket = inside
	access, err := p.access()
	if err != nil {
		return v, fieldError(origin, err)
	}
	var dir staging.SocketDir
	if s.creator == config.SideApplication {
		if dir, err = p.applicationDir(s, at, &access, origin, item); err != nil {
			return v, err
		}
	}
	switch {
	case p.staged():
		return p.stageSocket(s, at, &access, dir, v, origin)
	case s.creator == config.SideApplication:
		p.staging().SocketDirs = append(p.staging().SocketDirs, dir)
		return p.bindSocketDir(s, at, "rw", v, origin)
	}
	return p.bindHostSocket(s, at, &access, v, origin)
}

// point is the attachment's directory below ContainerDir: that of its interface. A
// device that no network brought has none, and is told from others by what the
// device plugin's files are named after, RESOURCE-DEVICE.
func (s *socket) point() string {
	name := s.att.IfName
	if name == "" {
		parts := slices.DeleteFunc([]string{s.att.Network, s.att.Resource, s.att.DeviceID}, func(p string) bool { return p == "" })
		name = strings.ReplaceAll(strings.Join(parts, "-"), "/", "-")
	}
	return path.Join("net", name)
}

// bindSocketDir has the runtime bind the socket's own directory, where sockets are
// not staged.
func (p *planner) bindSocketDir(s socket, at place, access string, v viewEntry, origin edits.Origin) (viewEntry, error) {
	point := s.point()
	p.staging().Dirs = append(p.staging().Dirs, staging.Dir{Path: point})
	source := path.Join(at.canonical, path.Dir(at.rel))
	return p.bindTwice(s, source, path.Join(ContainerDir, point), path.Dir(s.path), access, v, origin)
}

// bindHostSocket has the runtime bind a socket that the host makes, where sockets are not
// staged: with its directory where that may be handed over, else alone.
func (p *planner) bindHostSocket(s socket, at place, access *staging.Access, v viewEntry, origin edits.Origin) (viewEntry, error) {
	stage := p.staging()
	held := staging.Socket{Root: at.canonical, Rel: at.rel, From: from(origin), Access: *access}
	whole, why := false, "which is the socket root that all pods share"
	if path.Dir(at.rel) != "." {
		why = "which the policy does not grant as a whole (" + path.Dir(s.path) + "/**)"
		d, err := p.decideDir(s, at)
		if err != nil {
			return v, fieldError(origin, err)
		}
		whole = d.state == staging.Own || d.granted && !d.audited.Audited
	}
	if whole {
		stage.Sockets = append(stage.Sockets, held)
		return p.bindSocketDir(s, at, "ro", v, origin)
	}
	point := s.point()
	place := path.Join(point, path.Base(s.path))
	held.At = []string{place}
	stage.Dirs = append(stage.Dirs, staging.Dir{Path: point})
	stage.Sockets = append(stage.Sockets, held)
	v, err := p.bindTwice(s, path.Join(at.canonical, at.rel), path.Join(ContainerDir, place), s.path, "ro", v, origin)
	v.addNote("the socket is mounted without its directory, " + why + ": the container loses it when the host re-creates it")
	return v, err
}

// bindTwice has the runtime mount a source at a place below ContainerDir and, where that
// is safe, at the device-info's own path.
func (p *planner) bindTwice(s socket, source, inside, own, access string, v viewEntry, origin edits.Origin) (viewEntry, error) {
	mount := func(dst string) *edits.Mount {
		return &edits.Mount{Destination: dst, Source: p.host.Path(source), Type: "bind",
			Options: []string{"bind", access, "rprivate", "nosuid", "nodev", "noexec"}, Origin: origin}
	}
	if err := p.b.AddMount(mount(inside)); err != nil {
		return v, err
	}
	if reason := p.ownPathReason(mount(own)); reason != "" {
		v.addNote("the socket is not at its own path " + s.path + ": " + reason)
		return v, nil
	}
	v.ownPath = s.path
	return v, p.b.AddMount(mount(own))
}

// containerSocket is a socket whose device-info gives the path in the container:
// whoever wrote it mounts the directory there too.
func (p *planner) containerSocket(s socket, v viewEntry, origin edits.Origin) (viewEntry, error) {
	covered := false
	p.mounts(func(m *edits.Mount) bool {
		covered = covered || m.Destination != "/" && edits.Within(m.Destination, s.path)
		return !covered
	})
	if !covered {
		return v, fieldError(origin, fmt.Errorf("dialect %q says %q is a path in the container, but the container has no mount there; "+
			"mount its directory, or choose another dialect: %w", s.dialect.Use, s.path, errdefs.ErrFailedPrecondition))
	}
	v.socket, v.ownPath = s.path, s.path
	return v, nil
}

// checkSocket looks at the socket below its root on a descriptor, following no
// symlink.
func checkSocket(host hostfs.Root, root, rel string) error {
	file := path.Join(root, rel)
	st, err := host.StatNoSymlinks(file)
	if err != nil {
		if errdefs.IsNotFound(err) {
			return fmt.Errorf("%w; the host side creates this socket, and has not yet: check the vswitch's port", err)
		}
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%q is a %s, want a socket: %w", file, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	return nil
}

// ownPathReason says why a mount at the socket's own directory would hide
// something, or "".
func (p *planner) ownPathReason(m *edits.Mount) string {
	dst := edits.Clean(m.Destination)
	if reserved := reservedDir(dst); reserved != "" {
		return "a mount at " + m.Destination + " could hide what the image or the system has in " + reserved
	}
	if view := edits.Clean(ContainerDir); edits.WithinClean(view, dst) || edits.WithinClean(dst, view) {
		return m.Destination + " overlaps " + ContainerDir
	}
	reason := ""
	p.mounts(func(have *edits.Mount) bool {
		at := edits.Clean(have.Destination)
		switch {
		case at == dst && have.Source == m.Source && have.Origin.Source == m.Origin.Source:
			// The directory of another socket of this pod, at its own path already.
			return true
		case edits.WithinClean(dst, at), at != "/" && edits.WithinClean(at, dst),
			// A volume at /var has a /var/run of its own.
			at == "/var" && strings.HasPrefix(m.Destination, "/var/"):
			reason = "the container has a mount at " + have.Destination
			return false
		}
		return true
	})
	return reason
}

// reservedDir is the system directory in which dst, a clean path, may not be
// shadowed, or "".
func reservedDir(dst string) string {
	for _, d := range [...]string{"/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/boot", "/root"} {
		if edits.WithinClean(d, dst) {
			return d
		}
	}
	if first, _, _ := strings.Cut(dst[1:], "/"); strings.HasPrefix(first, "lib") {
		return "/" + first
	}
	for _, d := range [...]string{"/", "/run", "/var", "/var/lib", "/var/log", "/var/cache", "/tmp", "/var/tmp", "/home", "/opt", "/srv", "/mnt", "/media"} {
		if d == dst {
			return d
		}
	}
	return ""
}

// fieldError puts the file and field in front.
func fieldError(o edits.Origin, err error) error {
	return fmt.Errorf("%s: %s: %w", o.File, o.Field, err)
}
