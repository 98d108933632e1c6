// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// A socket comes from the device-info of an attachment or, by its name, from the configuration. After
// newAttachmentSocket and newNamedSocket, both take the same path: addSocket locates it below a socket root, checks
// policy and the host, and mounts it.

// ContainerDir is the directory in a container with everything that Jackfield delivers.
const ContainerDir = "/var/run/jackfield"

// socket is a socket that the container is to get.
type socket struct {
	name       string                 // of a named socket; "" for the socket of an attachment
	attachment *attachment.Attachment // nil for a named socket
	subject    policy.Subject         // of the policy
	origin     edit.Origin            // with the field that has the path
	path       string                 // as device-info or the configuration has it
	ownPath    string                 // at which applications expect the socket in the container
	dir        string                 // of the container's socket, below ContainerDir
	creator    config.Side
	dialect    string // of the device-info

	// onHost is false where nothing of the host is delivered: the socket is abstract, or its path is in the container.
	onHost  bool
	isMemif bool
	// isAbstract means that the socket is in the pod's network namespace, so that nothing is mounted for it.
	isAbstract bool
	await      bool // it can appear after the container was created
	// missingHint is the remedy if the socket does not exist.
	missingHint string
	// dirDenied is why its directory is never delivered; "" where policy decides.
	dirDenied string

	// Set by addSocket.
	at     socketPath  // of path
	access edit.Access // of the container's user
	placed placement
}

// newAttachmentSocket returns the socket that an attachment's device-info describes, in
// the dialect that the configuration sets for its network or resource. It returns nil for other devices.
func newAttachmentSocket(in *inputs, a *attachment.Attachment) *socket {
	driver := ""
	if a.Network == "" && a.Claimed != nil {
		driver = a.Claimed.Driver
	}
	dialect := in.cfg.Dialect(a.Network, a.Resource, driver)
	s := &socket{attachment: a, subject: in.subjectFor(a), dir: path.Join("net", attachmentDir(a)), dialect: dialect.Use,
		origin:      edit.Origin{Source: edit.Attachment, File: a.File},
		missingHint: "the vswitch has not created this socket yet: check its port"}
	switch a.Info.Type {
	case deviceinfo.TypeVhostUser:
		v := a.Info.VhostUser
		s.path, s.creator, s.origin.Field = v.Path, dialect.CreatedBy(string(v.Mode)), "vhost-user.path"
	case deviceinfo.TypeMemif:
		m := a.Info.Memif
		s.path, s.creator, s.origin.Field = m.Path, dialect.CreatedBy(string(m.Role)), "memif.path"
		s.isMemif, s.isAbstract = true, m.Abstract()
	default:
		return nil
	}
	s.ownPath = s.path
	s.onHost = !s.isAbstract && dialect.PathSide() != config.SideContainer
	return s
}

// attachmentDir returns the name of a socket's directory. It is the attachment's interface or, for a device without a
// network, RESOURCE-DEVICE like the device plugin's files, or the claim and request.
func attachmentDir(a *attachment.Attachment) string {
	name := a.IfName
	if a.Network == "" && a.Claimed != nil {
		name = strings.ReplaceAll(a.Claimed.Name(), "/", "-")
	} else if name == "" {
		parts := slices.DeleteFunc([]string{a.Network, a.Resource, a.DeviceID}, func(p string) bool { return p == "" })
		name = strings.ReplaceAll(strings.Join(parts, "-"), "/", "-")
	}
	return name
}

// newNamedSocket returns a socket of the host by the name that the node's configuration gives it. The
// container gets the socket alone, never its directory.
func newNamedSocket(in *inputs, name string) (*socket, error) {
	named, ok := in.cfg.Sockets.Named[name]
	if !ok {
		return nil, unknownSocketError(in, name)
	}
	return &socket{name: name, subject: in.subject(), path: named.Path, ownPath: named.At, dir: path.Join("named", name),
		origin:  edit.Origin{Source: edit.Attachment, File: in.opts.ConfigName, Field: "sockets.named." + name + ".path"},
		creator: config.SideHost, onHost: true, await: named.Create == config.SocketWait,
		dirDenied: "which its name does not grant",
		missingHint: "its server has not created this socket yet: " +
			"start the server, or have containers wait with create: wait"}, nil
}

// unknownSocketError is for a name that the configuration does not have. It checks policy first, so that tenants cannot
// probe for sockets of the node. A running container keeps a socket whose name was removed.
func unknownSocketError(in *inputs, name string) error {
	_, refused := in.policy.NamedSocket(in.subject(), name, policy.SocketPath{})
	if refused != nil && !in.opts.ForAdministrator {
		return refused
	}
	names := slices.Sorted(maps.Keys(in.cfg.Sockets.Named))
	hint := "; " + in.opts.onNode("add it to sockets.named in "+in.opts.ConfigName)
	if near := diag.Nearest(name, names...); near != "" {
		hint = "; did you mean socket:" + near + "?"
	}
	return fmt.Errorf("the node's configuration names no socket %q%s: %w", name, hint, errdefs.ErrNotFound)
}

// resolveNamedSocket adds a named socket.
func resolveNamedSocket(in *inputs, d *delta, name string) error {
	s, err := newNamedSocket(in, name)
	if err != nil {
		return err
	}
	d.item.File = s.origin.File
	return addSocket(in, d, s)
}

// isOfClaim reports whether the socket belongs to a device of a resource claim.
func (s *socket) isOfClaim() bool { return s.attachment != nil && s.attachment.Claimed != nil }

// fieldError puts the file and field of the path before an error.
func (s *socket) fieldError(err error) error {
	return &RequestError{File: s.origin.File, Field: s.origin.Field, Err: err}
}

// source returns the file and field that request the socket, for messages of the delivery.
func (s *socket) source() string { return s.origin.File + ": " + s.origin.Field }

// addSocket adds a socket and its entry in the container's view.
func addSocket(in *inputs, d *delta, s *socket) (err error) {
	s.origin.Request = d.item.Request
	switch {
	case s.onHost:
		err = addHostSocket(in, d, s)
	case s.isAbstract:
		s.placed.path = s.path
	default:
		err = checkContainerPath(in, d, s)
	}
	if err != nil {
		return err
	}
	s.placed.creator = s.creator
	if s.placed.note != "" {
		d.addNotes(s.placed.note)
	}
	d.item.Outcome = Injected // also if the container has the directory of another socket already
	if s.isOfClaim() && d.edits.Changes() == 0 {
		d.item.Outcome = Present // the driver requested the mount
	}
	if s.name != "" {
		d.view = newNamedEntry(s.name, s.placed)
	} else {
		d.view = newAttachmentEntry(s.attachment, s.placed)
	}
	return nil
}

// addHostSocket adds a socket of the host: below ContainerDir, and at its own path where that is
// safe. The directory of a socket that the host creates is read-only.
func addHostSocket(in *inputs, d *delta, s *socket) (err error) {
	if s.at, err = in.roots.locate(s.name, s.path); err != nil {
		return s.fieldError(err)
	}
	if err := grantSocket(in, d, s); err != nil {
		if !in.hasSocket(s.at) {
			return err
		}
		d.addNotes("it was granted when the container got it")
	}
	s.origin.Rule = d.item.Rule
	s.placed.path = path.Join(ContainerDir, s.dir, path.Base(s.ownPath))
	if len(s.placed.path) > hostfs.MaxSocketPath {
		return s.fieldError(fmt.Errorf("the path in the container, %q, has %d bytes; a UNIX socket's path has at most %d: %w",
			s.placed.path, len(s.placed.path), hostfs.MaxSocketPath, errdefs.ErrInvalidArgument))
	}
	if s.creator == config.SideHost {
		if err := checkHostSocket(in, d, s); err != nil {
			return s.fieldError(err)
		}
	}
	if s.access, err = socketAccess(in); err != nil {
		return s.fieldError(err)
	}
	return mountSocket(in, d, s)
}

// checkContainerPath checks that the container has a mount for a socket whose device-info has the
// path in the container. The writer of the device-info mounts the directory there.
func checkContainerPath(in *inputs, d *delta, s *socket) error {
	covered := false
	d.edits.Mounts(func(m *edit.Mount) bool {
		covered = m.Destination != "/" && edit.IsUnder(m.Destination, s.path)
		return !covered
	})
	switch {
	case covered:
	case in.req.FromManifest && s.isOfClaim():
		d.addNotes("the claim's driver has to have the runtime mount the directory of the socket (CDI), " +
			"which a manifest does not show")
	default:
		return s.fieldError(fmt.Errorf("dialect %q says %q is a path in the container, "+
			"but the container has no mount there; mount its directory, or choose another dialect: %w",
			s.dialect, s.path, errdefs.ErrFailedPrecondition))
	}
	s.placed.path, s.placed.ownPath = s.path, s.path
	return nil
}

// checkHostSocket checks on a descriptor that a path below its root is a socket, or that the socket can appear
// later. It follows no symlink.
func checkHostSocket(in *inputs, d *delta, s *socket) error {
	file := path.Join(s.at.canonical, s.at.rel)
	st, err := in.host.StatNoSymlinks(file)
	// A missing socket is bound later in a running container, and in others where the configuration permits to wait.
	switch missing := errdefs.IsNotFound(err); {
	case missing && in.running:
		return nil
	case missing && s.await && in.opts.Staged():
		d.addNotes("the socket does not exist yet; the container gets it once its server creates it")
		return nil
	case missing && s.await:
		return fmt.Errorf("%w; its server has not created this socket yet, and create: wait needs sockets.staging: mount, "+
			"but sockets are not staged here", err)
	case missing:
		return fmt.Errorf("%w; %s", err, s.missingHint)
	case err != nil:
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("%q is a %s: must be a socket: %w", file, hostfs.TypeName(st.Mode), errdefs.ErrInvalidArgument)
	}
	return nil
}

// socketAccess returns how the container's user gets access to sockets.
func socketAccess(in *inputs) (edit.Access, error) {
	a := edit.Access{Method: edit.AccessMethod(in.cfg.Sockets.Access), Label: in.cfg.Sockets.SELinuxLabel}
	u, err := in.hostUser()
	if u != nil {
		a.User = &edit.User{UID: u.UID, GID: u.GID}
	}
	return a, err
}
