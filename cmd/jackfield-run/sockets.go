// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/devices"
)

// pollInterval is the time between two checks of a socket that is not served yet.
const pollInterval = 100 * time.Millisecond

// waitForSockets waits until host processes serve all sockets that the host creates.
func waitForSockets(list []devices.Device, limit time.Duration) error {
	end := time.Now().Add(limit)
	for _, socket := range socketsCreatedBy(list, devices.CreatedByHost) {
		for {
			served, err := isServed(socket)
			if served {
				break
			}
			// Access is granted only after a new socket was mounted.
			if time.Now().After(end) {
				return fmt.Errorf("the host has not served the socket %s within %v: %w", socket, limit,
					cmp.Or(err, error(unix.ECONNREFUSED)))
			}
			time.Sleep(pollInterval)
		}
	}
	return nil
}

// removeStaleSockets removes sockets that the application creates and on which no process listens.
// A crash leaves them behind, and bind(2) fails while they exist.
func removeStaleSockets(list []devices.Device) error {
	for _, socket := range socketsCreatedBy(list, devices.CreatedByApplication) {
		served, err := isServed(socket)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case served:
			return fmt.Errorf("another process listens on the socket %s", socket)
		default:
			if err := os.Remove(socket); err != nil {
				return err
			}
		}
	}
	return nil
}

// socketsCreatedBy returns the paths of the sockets that one side creates. An abstract socket has
// no path.
func socketsCreatedBy(list []devices.Device, side string) (sockets []string) {
	for i := range list {
		if socket := list[i].Socket(); list[i].Jackfield.CreatedBy == side && strings.HasPrefix(socket, "/") {
			sockets = append(sockets, socket)
		}
	}
	return sockets
}

// isServed reports whether a process has a socket open. It connects a datagram socket: the kernel
// rejects the wrong type before the server notices, so that a vswitch does not count a connection.
func isServed(socket string) (bool, error) {
	if st, err := os.Lstat(socket); err != nil {
		return false, err
	} else if st.Mode().Type() != fs.ModeSocket {
		return false, fmt.Errorf("%s exists and is not a socket", socket)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err {
	case nil, unix.EPROTOTYPE:
		return true, nil
	case unix.ECONNREFUSED:
		return false, nil
	default:
		return false, &fs.PathError{Op: "connect", Path: socket, Err: err}
	}
}
