// SPDX-License-Identifier: Apache-2.0

package vswitch_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/port/vswitch/grout"
	"github.com/jackfield/jackfield/internal/port/vswitch/ovs"
	"github.com/jackfield/jackfield/internal/port/vswitch/vpp"
)

// fillQueue returns a socket whose listen queue is full, and a function that accepts and closes the connections.
func fillQueue(t *testing.T) (socket string, accept func()) {
	t.Helper()
	dir, err := os.MkdirTemp("", "dial") // short, for the sake of socket paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = dir + "/s"
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err = errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: socket}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), socket)
	listener, err := net.FileListener(file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	for {
		conn, err := net.Dial("unix", socket)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	return socket, func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
		}
	}
}

func drivers(socket string) map[string]vswitch.Driver {
	s := vswitch.Switch{Name: "sw0", Endpoint: socket}
	return map[string]vswitch.Driver{
		"grout": &grout.Driver{Switch: s, Grcli: "/bin/true"}, "ovs": &ovs.Driver{Switch: s}, "vpp": &vpp.Driver{Switch: s},
	}
}

// A switch that is busy accepts a connection later. Linux refuses it at once with EAGAIN meanwhile.
func TestProbeWaitsForFullListenQueue(t *testing.T) {
	for name := range drivers("") {
		t.Run(name, func(t *testing.T) {
			socket, accept := fillQueue(t)
			const patience = 300 * time.Millisecond
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			err := drivers(socket)[name].Probe(ctx)
			var unavailable *vswitch.UnavailableError
			if time.Since(began) < patience*9/10 || !errors.As(err, &unavailable) || unavailable.Down || unavailable.Err.Error() == unix.EAGAIN.Error() {
				t.Fatalf("Probe of a switch that accepts nothing: %v, after %v", err, time.Since(began))
			}
			if name == "vpp" {
				return // its connections begin with an exchange of messages
			}
			time.AfterFunc(100*time.Millisecond, func() { accept() })
			if err := drivers(socket)[name].Probe(t.Context()); err != nil {
				t.Errorf("Probe of a switch that accepts after a moment: %v", err)
			}
		})
	}
}
