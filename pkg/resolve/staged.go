// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"path"
	"slices"
	"strings"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/staging"
)

// stageSocket has the socket bound in the staging directory, which the container
// has at ContainerDir. The directory that it lies in there is mounted at its own
// path as well, so that both lead to whatever is bound. made is the directory of a socket
// that the application makes.
func (p *planner) stageSocket(s socket, at place, access *staging.Access, made staging.SocketDir, v viewEntry, origin edits.Origin) (viewEntry, error) {
	point := s.point()
	dir := staging.Dir{Path: point}
	stage := p.staging()
	host := s.creator == config.SideHost
	var staged *staging.Socket
	if host {
		// DPDK's memif client refuses a directory that it cannot write to.
		dir.Scratch = s.att.Info.Type == deviceinfo.TypeMemif
		stage.Sockets = append(slices.Clip(stage.Sockets), staging.Socket{
			Root: at.canonical, Rel: at.rel, At: []string{path.Join(point, path.Base(s.path))}, From: from(origin), Access: *access,
		})
		staged = &stage.Sockets[len(stage.Sockets)-1]
	} else {
		made.At = point
		stage.SocketDirs = append(slices.Clip(stage.SocketDirs), made)
	}
	stage.Dirs = append(slices.Clip(stage.Dirs), dir)
	own := p.stagedMount(path.Dir(s.path), point, !host || dir.Scratch, origin)
	with, ok := p.stagedAt(own.Destination)
	if p.running && ok && with == point {
		v.ownPath = s.path
		return v, nil
	}
	if ok && host && !dir.Scratch {
		// Another socket of the pod has the same directory: both are bound in it.
		v.ownPath = s.path
		if !stage.HasDir(with) {
			// Of an interface that is gone from the running container.
			stage.Dirs = append(stage.Dirs, staging.Dir{Path: with})
		}
		if !slices.ContainsFunc(stage.SocketDirs, func(d staging.SocketDir) bool { return d.At == with }) {
			staged.At = append(staged.At, path.Join(with, path.Base(s.path)))
		}
		return v, nil
	}
	reason := ""
	if p.running {
		reason = "the container was running when the network came"
	} else {
		reason = p.ownPathReason(own)
	}
	if reason != "" {
		v.note = "the socket is not at its own path " + s.path + ": " + reason
		return v, nil
	}
	v.ownPath = s.path
	return v, p.b.AddMount(own)
}

// stagedAt is the directory of the staging directory that is mounted at dst.
func (p *planner) stagedAt(dst string) (dir string, ok bool) {
	base := p.stagingSource("") + "/"
	p.mounts(func(m *edits.Mount) bool {
		if edits.SamePlace(m.Destination, dst) {
			dir, ok = strings.CutPrefix(m.Source, base)
		}
		return !ok
	})
	return dir, ok
}

// stagingSource is where a directory of the container's staging directory lies on
// the machine.
func (p *planner) stagingSource(dir string) string {
	return p.host.Path(path.Join(staging.ContainerDir(p.cfg.StateDir, p.req.ContainerID), dir))
}

// stagedMount mounts a part of the staging directory, with what is mounted in it
// and will be.
func (p *planner) stagedMount(dst, dir string, writable bool, origin edits.Origin) *edits.Mount {
	access := "ro"
	if writable {
		access = "rw"
	}
	return &edits.Mount{Destination: dst, Source: p.stagingSource(dir), Type: "bind", Origin: origin,
		Options: []string{"rbind", access, "rslave", "nosuid", "nodev", "noexec"}}
}

// socketDir is the directory in which the application makes its socket.
func (p *planner) socketDir(at place, a *staging.Access, origin edits.Origin) staging.SocketDir {
	d := staging.SocketDir{Root: at.canonical, Rel: path.Dir(at.rel), UID: -1, GID: -1, From: from(origin)}
	if a.User != nil {
		d.UID, d.GID, d.Way = int(a.User.UID), int(a.User.GID), a.Way
	}
	return d
}

// access is how the container's user gets at sockets.
func (p *planner) access() (staging.Access, error) {
	a := staging.Access{Way: staging.Way(p.cfg.Sockets.Access), Label: p.cfg.Sockets.SELinuxLabel}
	u, err := p.user()
	if u != nil {
		a.User = &staging.User{UID: u.UID, GID: u.GID}
	}
	return a, err
}

// user is the user of the host whom the container runs as; nil where that is not
// known. In a user namespace of its own that is another than inside, where it is
// root unless somebody says otherwise.
func (p *planner) user() (*User, error) {
	u := p.req.User
	if uid, gid, ok := p.cfg.Sockets.UserIDs(); u == nil && ok {
		u = &User{UID: uid, GID: gid}
	}
	if p.req.UserNS == nil {
		return u, nil
	}
	if u == nil {
		u = &User{}
	}
	mapped, err := p.onHost(*u)
	if err != nil {
		return nil, err
	}
	return &mapped, nil
}

// from names the file and field that ask for something.
func from(o edits.Origin) string { return o.File + ": " + o.Field }
