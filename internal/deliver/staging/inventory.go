// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// SocketState compares the socket at a place in a container with the socket of the host.
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

// Stats counts the containers and sockets that a store tracks.
type Stats struct {
	Containers int
	Sockets    int // of the host, bound in the containers
}

// Add returns the sum of the counts of two stores.
func (s Stats) Add(o Stats) Stats {
	return Stats{s.Containers + o.Containers, s.Sockets + o.Sockets}
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
