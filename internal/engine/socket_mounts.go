// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/edit"
)

// stageSocket has the socket bound in the staging directory, which the container
// has at ContainerDir. Its directory there is also mounted at its own path, so that a socket that
// is bound later appears at both. created is the directory of a socket that the application creates.
func (p *planner) stageSocket(s *socket, created edit.SocketDir) error {
	mountPoint := s.mountPoint()
	dir := edit.Dir{Path: mountPoint}
	stage := p.staging()
	byHost := s.creator == config.SideHost
	if byHost {
		// DPDK's memif client refuses a directory that it cannot write to.
		dir.Scratch = s.isMemif()
		stage.Sockets = append(slices.Clip(stage.Sockets), edit.Socket{
			Root: s.at.canonical, Rel: s.at.rel, At: []string{path.Join(mountPoint, path.Base(s.own))}, From: s.source(), Access: s.access, Await: s.await,
		})
	} else {
		created.At = mountPoint
		stage.SocketDirs = append(slices.Clip(stage.SocketDirs), created)
	}
	stage.Dirs = append(slices.Clip(stage.Dirs), dir)
	if s.own == s.containerPath {
		return nil
	}
	own := p.stagedMount(path.Dir(s.own), mountPoint, !byHost || dir.Scratch, s.origin)
	with, ok := p.stagedAt(own.Destination)
	switch {
	case ok && with == mountPoint:
		s.ownPath = s.own // it is mounted already
		return nil
	case !ok || !byHost || dir.Scratch:
		return p.mountOwnPath(s, own)
	}
	return p.bindInSharedDir(s, with)
}

// bindInSharedDir has the host's socket that was staged last also bound in a directory of the staging
// directory that another socket of the pod has at the socket's own path.
func (p *planner) bindInSharedDir(s *socket, with string) error {
	stage := p.staging()
	place := path.Join(with, path.Base(s.own))
	last := len(stage.Sockets) - 1
	for i := range last {
		if k := &stage.Sockets[i]; slices.Contains(k.At, place) && (k.Root != s.at.canonical || k.Rel != s.at.rel) {
			return s.fieldError(fmt.Errorf("the container has another socket at %q: %q: %w", s.own, path.Join(k.Root, k.Rel), errdefs.ErrConflict))
		}
	}
	s.ownPath = s.own
	if !stage.HasDir(with) {
		// Of an interface that the running container no longer has.
		stage.Dirs = append(stage.Dirs, edit.Dir{Path: with})
	}
	switch {
	case slices.ContainsFunc(stage.Sockets, func(k edit.Socket) bool { return slices.Contains(k.At, place) }): // by another network
	case !slices.ContainsFunc(stage.SocketDirs, func(d edit.SocketDir) bool { return d.At == with }):
		stage.Sockets[last].At = append(stage.Sockets[last].At, place)
	case s.named != "":
		s.ownPath = ""
		s.addNote("the socket is not at its own path " + s.own + ": the container creates sockets of its own in that directory")
	}
	return nil
}

// stagedAt returns the directory of the staging directory that is mounted at dst.
func (p *planner) stagedAt(dst string) (dir string, ok bool) {
	base := p.stagingSource("") + "/"
	p.b.Mounts(func(m *edit.Mount) bool {
		if edit.SameContainerPath(m.Destination, dst) {
			dir, ok = strings.CutPrefix(m.Source, base)
		}
		return !ok
	})
	return dir, ok
}

// stagingSource returns the path of a directory of the container's staging directory on the
// machine.
func (p *planner) stagingSource(dir string) string {
	return p.host.Path(edit.ContainerDir(p.cfg.StateDir, p.req.ContainerID) + "/" + dir)
}

// stagedMount mounts a part of the staging directory, with what is mounted in it now and later.
func (p *planner) stagedMount(dst, dir string, writable bool, origin edit.Origin) *edit.Mount {
	access := "ro"
	if writable {
		access = "rw"
	}
	return &edit.Mount{Destination: dst, Source: p.stagingSource(dir), Type: "bind", Origin: origin,
		Options: []string{"rbind", access, "rslave", "nosuid", "nodev", "noexec"}}
}

// Where sockets are not staged, the runtime binds them: with their directory, or alone.

// bindSocketDir has the runtime bind the directory of a socket.
func (p *planner) bindSocketDir(s *socket, access string) error {
	mountPoint := s.mountPoint()
	p.staging().Dirs = append(p.staging().Dirs, edit.Dir{Path: mountPoint})
	return p.bindTwice(s, path.Join(s.at.canonical, path.Dir(s.at.rel)), mountPoint, path.Dir(s.own), access)
}

// bindHostSocket has the runtime bind a socket that the host creates: with its directory where
// policy grants that, otherwise alone.
func (p *planner) bindHostSocket(s *socket) error {
	stage := p.staging()
	held := edit.Socket{Root: s.at.canonical, Rel: s.at.rel, From: s.source(), Access: s.access}
	whole, why := false, "which is the socket root that all pods share"
	switch {
	case s.named != "":
		why = "which its name does not grant"
	case path.Dir(s.at.rel) != ".":
		why = "which the policy does not grant as a whole (" + path.Dir(s.path) + "/**)"
		d, err := p.decideDir(s)
		if err != nil {
			return s.fieldError(err)
		}
		whole = d.state == edit.OwnDir || d.refusal == nil && !d.grant.Audited
	}
	if whole {
		stage.Sockets = append(stage.Sockets, held)
		return p.bindSocketDir(s, "ro")
	}
	mountPoint := s.mountPoint()
	relative := path.Join(mountPoint, path.Base(s.own))
	held.At = []string{relative}
	stage.Dirs = append(stage.Dirs, edit.Dir{Path: mountPoint})
	stage.Sockets = append(stage.Sockets, held)
	err := p.bindTwice(s, path.Join(s.at.canonical, s.at.rel), relative, s.own, "ro")
	s.addNote("the socket is mounted without its directory, " + why + ": the container loses it when the host re-creates it")
	return err
}

// bindTwice has the runtime mount a source at a path below ContainerDir and, where that
// is safe, at the device-info's own path.
func (p *planner) bindTwice(s *socket, source, relative, own, access string) error {
	m := edit.Mount{Destination: path.Join(ContainerDir, relative), Source: p.host.Path(source), Type: "bind",
		Options: []string{"bind", access, "rprivate", "nosuid", "nodev", "noexec"}, Origin: s.origin}
	if err := p.b.AddMount(&m); err != nil {
		return err
	}
	if m.Destination == own {
		return nil
	}
	m.Destination = own
	return p.mountOwnPath(s, &m)
}

// mountOwnPath mounts a socket at the device-info's own path, or notes why it cannot.
func (p *planner) mountOwnPath(s *socket, m *edit.Mount) error {
	reason := p.noMount
	if reason == "" {
		reason = p.ownPathReason(m)
	}
	if reason != "" {
		s.addNote("the socket is not at its own path " + s.own + ": " + reason)
		return nil
	}
	s.ownPath = s.own
	return p.b.AddMount(m)
}

// ownPathReason returns what a mount at the socket's own path would hide, or "".
func (p *planner) ownPathReason(m *edit.Mount) string {
	dst := edit.Clean(m.Destination)
	if dir := reserved.DirInContainer(dst); dir != "" {
		return "a mount at " + m.Destination + " could hide what the image or the system has in " + dir
	}
	if view := edit.Clean(ContainerDir); edit.IsUnder(view, dst) || edit.IsUnder(dst, view) {
		return m.Destination + " overlaps " + ContainerDir
	}
	reason := ""
	p.b.Mounts(func(have *edit.Mount) bool {
		at := edit.Clean(have.Destination)
		switch {
		case at == dst && have.Source == m.Source && have.Origin.Source == m.Origin.Source:
			// The directory of another socket of this pod, at its own path already.
			return true
		case edit.IsUnder(dst, at), at != "/" && edit.IsUnder(at, dst),
			// A volume at /var has a /var/run of its own.
			at == "/var" && strings.HasPrefix(m.Destination, "/var/"):
			reason = "the container has a mount at " + have.Destination
			return false
		}
		return true
	})
	return reason
}
