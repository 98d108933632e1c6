// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// SocketState compares what a container has at a socket's place with what the host has.
type SocketState string

const (
	SocketBound     SocketState = "bound"     // the container has the host's present socket
	SocketRefusing  SocketState = "refusing"  // as SocketBound, and no process listens on it
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
	Rebinds     int           // in place of an earlier socket, since the store tracks the container
	Identity    hostfs.FileID // of the socket that the container has; zero for none
	// Since is when the container got it, by the times of its place and of the socket. They outlive the process.
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
				all = append(all, PlacedSocket{ContainerID: id, SandboxID: r.SandboxID, At: at, HostPath: k.HostPath(), Rebinds: r.rebinds[k.HostPath()]})
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
		if p.State == SocketDirectory {
			p.Since = modTime(s.recordFile(p.SandboxID, p.ContainerID))
			continue
		}
		place := filepath.Join(s.containersDir(), p.ContainerID, p.At)
		// The record is written again with each network that comes or goes. The directory of the place is not.
		p.Since = modTime(filepath.Dir(place))
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
		} else if !isServed(place) {
			p.State = SocketRefusing
		}
	}
	return all
}

// isServed reports whether a process may listen on a socket. It connects a datagram socket: where another kind listens,
// the kernel refuses the wrong type before the listener sees anything.
func isServed(path string) bool {
	file, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(file)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	// By descriptor: the path can be longer than a socket's address.
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: hostfs.DescriptorPath(file)})
	return !errors.Is(err, unix.ECONNREFUSED)
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
