// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/claims"
)

// SocketState compares what a container has at a socket's place with what the host has.
type SocketState string

const (
	SocketBound     SocketState = "bound"     // the container has the host's present socket
	SocketRemoved   SocketState = "removed"   // the host has none: the container keeps the last one
	SocketOutdated  SocketState = "outdated"  // the host has another one
	SocketAwaited   SocketState = "awaited"   // the container has none yet
	SocketDirectory SocketState = "directory" // in which the application creates its own
)

// PlacedSocket is a socket, or a directory for sockets, at its place in a container.
type PlacedSocket struct {
	ContainerID string
	SandboxID   string
	At          string // in the staging directory
	HostPath    string
	State       SocketState
	Rebinds     int             // since the store tracks the container
	Identity    claims.Identity // of the socket that the container has; zero for none
	// Since is when the container got it, by the times of its record and of the socket. They outlive the process.
	Since time.Time
}

// Sockets returns the sockets of all tracked containers. It reads the host's file systems, so it can hang.
func (s *Store) Sockets() []PlacedSocket {
	var all []PlacedSocket
	s.mu.Lock()
	for id, r := range s.tracked {
		for i := range r.Sockets {
			k := &r.Sockets[i]
			for _, at := range k.At {
				all = append(all, PlacedSocket{ContainerID: id, SandboxID: r.SandboxID, At: at, HostPath: k.hostPath(), Rebinds: r.rebinds[k.hostPath()]})
			}
		}
		for i := range r.SocketDirs {
			if d := &r.SocketDirs[i]; d.At != "" {
				all = append(all, PlacedSocket{ContainerID: id, SandboxID: r.SandboxID, At: d.At, HostPath: filepath.Join(d.Root, d.Rel), State: SocketDirectory})
			}
		}
	}
	s.mu.Unlock()
	for i := range all {
		p := &all[i]
		p.Since = modTime(s.recordFile(p.SandboxID, p.ContainerID))
		if p.State == SocketDirectory {
			continue
		}
		place := filepath.Join(s.containersDir(), p.ContainerID, p.At)
		bound, ok := boundSocket(place)
		if !ok {
			p.State, p.Since = SocketAwaited, time.Time{}
			continue
		}
		p.Identity, p.State = bound, SocketBound
		if created := modTime(place); created.After(p.Since) {
			p.Since = created
		}
		if present, ok := boundSocket(s.host.Path(p.HostPath)); !ok {
			p.State = SocketRemoved
		} else if present != bound {
			p.State = SocketOutdated
		}
	}
	return all
}

// modTime returns when a file was written, a directory was changed or a socket was created. It is zero
// for what does not exist.
func modTime(path string) time.Time {
	var st unix.Stat_t
	if unix.Lstat(path, &st) != nil {
		return time.Time{}
	}
	return time.Unix(st.Mtim.Unix()).UTC()
}
