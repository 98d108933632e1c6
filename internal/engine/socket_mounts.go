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

// A granted socket reaches the container by one of two methods. Staged sockets are bound in the staging directory,
// which the container has at ContainerDir, so that they can be replaced while the container runs. Otherwise the runtime
// binds them: with their directory, or alone. By either method, a socket is also at its own path where a mount there
// hides nothing.

// mountDenied is why a running container gets no mount at a socket's own path.
const mountDenied = "the container was running when the network came"

// mountSocket adds the mounts of a socket that policy has granted.
func mountSocket(in *inputs, d *delta, s *socket) error {
	if s.creator == config.SideApplication {
		dir, err := applicationDir(in, d, s)
		if err != nil {
			return err
		}
		if in.opts.Staged() {
			dir.At = s.dir
		}
		d.host.SocketDirs = append(d.host.SocketDirs, dir)
		if in.opts.Staged() {
			return stageSocket(in, d, s, edit.Dir{Path: s.dir}, true)
		}
		return bindSocketDir(in, d, s, "rw")
	}
	held := edit.Socket{Root: s.at.canonical, Rel: s.at.rel, From: s.source(), Access: s.access}
	if !in.opts.Staged() {
		return bindHostSocket(in, d, s, held)
	}
	held.At, held.Await = []string{path.Join(s.dir, path.Base(s.ownPath))}, s.await
	d.host.Sockets = append(d.host.Sockets, held)
	// DPDK's memif client refuses a directory that it cannot write to.
	return stageSocket(in, d, s, edit.Dir{Path: s.dir, Scratch: s.isMemif}, s.isMemif)
}

// stageSocket adds the socket's directory in the staging directory. The directory is also mounted at the socket's own
// path, so that a socket that is bound later appears at both.
func stageSocket(in *inputs, d *delta, s *socket, dir edit.Dir, writable bool) error {
	d.host.Dirs = append(d.host.Dirs, dir)
	if s.ownPath == s.placed.path {
		return nil
	}
	own := stagedMount(in, path.Dir(s.ownPath), dir.Path, writable, s.origin)
	shared, ok := stagedDirAt(in, d, own.Destination)
	switch {
	case ok && shared == dir.Path:
		s.placed.ownPath = s.ownPath
		return nil
	case ok && !writable:
		return bindInSharedDir(d, s, shared)
	}
	return mountAtOwnPath(in, d, s, own)
}

// bindInSharedDir also binds the host's socket in a directory of the staging
// directory that another socket of the pod has at the socket's own path.
func bindInSharedDir(d *delta, s *socket, shared string) error {
	merged := &d.merged.host
	place := path.Join(shared, path.Base(s.ownPath))
	isAtPlace := func(k edit.Socket) bool { return slices.Contains(k.At, place) }
	for i := range merged.Sockets {
		if k := &merged.Sockets[i]; isAtPlace(*k) && (k.Root != s.at.canonical || k.Rel != s.at.rel) {
			return s.fieldError(fmt.Errorf("the container has another socket at %q: %q: %w",
				s.ownPath, path.Join(k.Root, k.Rel), errdefs.ErrConflict))
		}
	}
	if !merged.HasDir(shared) {
		// It belongs to an interface that the running container no longer has.
		d.host.Dirs = append(d.host.Dirs, edit.Dir{Path: shared})
	}
	s.placed.ownPath = s.ownPath
	if slices.ContainsFunc(merged.Sockets, isAtPlace) {
		return nil // by another network
	}
	at := slices.IndexFunc(merged.SocketDirs, func(dir edit.SocketDir) bool { return dir.At == shared })
	if at < 0 {
		own := &d.host.Sockets[0]
		own.At = append(own.At, place)
		return nil
	}
	if dir := &merged.SocketDirs[at]; dir.Root != s.at.canonical || dir.Rel != path.Dir(s.at.rel) {
		s.placed.ownPath = ""
		s.placed.addNote("the socket is not at its own path " + s.ownPath +
			": the container creates sockets of its own in that directory")
	}
	return nil
}

// stagedDirAt returns the directory of the staging directory that is mounted at dst.
func stagedDirAt(in *inputs, d *delta, dst string) (dir string, ok bool) {
	base := stagingSource(in, "") + "/"
	d.edits.Mounts(func(m *edit.Mount) bool {
		if edit.SameContainerPath(m.Destination, dst) {
			dir, ok = strings.CutPrefix(m.Source, base)
		}
		return !ok
	})
	return dir, ok
}

// stagingSource returns the host path of a directory of the container's staging directory, outside of any root.
func stagingSource(in *inputs, dir string) string {
	return in.host.Path(edit.ContainerDir(in.cfg.StateDir, in.req.ContainerID) + "/" + dir)
}

// stagedMount mounts a part of the staging directory, with all mounts in it now and later.
func stagedMount(in *inputs, dst, dir string, writable bool, origin edit.Origin) *edit.Mount {
	access := "ro"
	if writable {
		access = "rw"
	}
	return &edit.Mount{Destination: dst, Source: stagingSource(in, dir), Type: "bind", Origin: origin,
		Options: []string{"rbind", access, "rslave", "nosuid", "nodev", "noexec"}}
}

// bindHostSocket adds a socket that the runtime binds: with its directory where
// policy grants that, otherwise alone.
func bindHostSocket(in *inputs, d *delta, s *socket, held edit.Socket) error {
	reason := "which is the socket root that all pods share"
	switch {
	case s.dirDenied != "":
		reason = s.dirDenied
	case path.Dir(s.at.rel) != ".":
		decision, err := decideDir(in, s)
		if err != nil {
			return s.fieldError(err)
		}
		if decision.state == edit.OwnDir || decision.refusal == nil && !decision.grant.Audited {
			d.host.Sockets = append(d.host.Sockets, held)
			return bindSocketDir(in, d, s, "ro")
		}
		reason = "which the policy does not grant as a whole (" + path.Dir(s.path) + "/**)"
	}
	relative := path.Join(s.dir, path.Base(s.ownPath))
	held.At = []string{relative}
	d.host.Dirs = append(d.host.Dirs, edit.Dir{Path: s.dir})
	d.host.Sockets = append(d.host.Sockets, held)
	err := bindTwice(in, d, s, path.Join(s.at.canonical, s.at.rel), relative, s.ownPath, "ro")
	s.placed.addNote("the socket is mounted without its directory, " + reason +
		": the container loses it when the host re-creates it")
	return err
}

// bindSocketDir adds the directory of a socket, which the runtime binds.
func bindSocketDir(in *inputs, d *delta, s *socket, access string) error {
	d.host.Dirs = append(d.host.Dirs, edit.Dir{Path: s.dir})
	return bindTwice(in, d, s, path.Join(s.at.canonical, path.Dir(s.at.rel)), s.dir, path.Dir(s.ownPath), access)
}

// bindTwice adds mounts of a source at a path below ContainerDir and, where that
// is safe, at the socket's own path.
func bindTwice(in *inputs, d *delta, s *socket, source, relative, own, access string) error {
	m := edit.Mount{Destination: path.Join(ContainerDir, relative), Source: in.host.Path(source), Type: "bind",
		Options: []string{"bind", access, "rprivate", "nosuid", "nodev", "noexec"}, Origin: s.origin}
	if err := d.edits.AddMount(&m); err != nil {
		return err
	}
	if m.Destination == own {
		return nil
	}
	m.Destination = own
	return mountAtOwnPath(in, d, s, &m)
}

// mountAtOwnPath adds a mount at the socket's own path, or a note why there is none.
func mountAtOwnPath(in *inputs, d *delta, s *socket, m *edit.Mount) error {
	reason := mountDenied
	if !in.running {
		reason = hiddenBy(d, m)
	}
	if reason != "" {
		s.placed.addNote("the socket is not at its own path " + s.ownPath + ": " + reason)
		return nil
	}
	s.placed.ownPath = s.ownPath
	return d.edits.AddMount(m)
}

// hiddenBy returns which files or mounts a mount at a socket's own path would hide, or "".
func hiddenBy(d *delta, m *edit.Mount) string {
	dst := edit.Clean(m.Destination)
	if dir := reserved.DirInContainer(dst); dir != "" {
		return "a mount at " + m.Destination + " could hide what the image or the system has in " + dir
	}
	if view := edit.Clean(ContainerDir); edit.IsUnder(view, dst) || edit.IsUnder(dst, view) {
		return m.Destination + " overlaps " + ContainerDir
	}
	reason := ""
	d.edits.Mounts(func(have *edit.Mount) bool {
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
