// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// A client that keeps connections open does not block others: the kubelet kills a plugin whose
// health it cannot check, and any pod may reach the port.
func TestIdleConnectionsDoNotBlockNewOnes(t *testing.T) {
	const most = 4
	path := filepath.Join(t.TempDir(), "m.sock")
	s := Start(Options{
		Listen:   func() (net.Listener, error) { return net.Listen("unix", path) },
		Handler:  http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "ok") }),
		MaxConns: most,
		Failed:   func(err error) { t.Error(err) },
	})
	defer s.Close()
	s.Wait()
	ask := func(c net.Conn) error {
		testkit.Must(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: jackfield\r\n\r\n"); err != nil {
			return err
		}
		r, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", r.StatusCode)
		}
		_, err = io.Copy(io.Discard, r.Body)
		return err
	}
	var held []net.Conn
	for i := range 3 * most {
		c, err := net.Dial("unix", path)
		testkit.Must(t, err)
		defer c.Close()
		if err := ask(c); err != nil {
			t.Fatalf("connection %d beside %d that are kept: %v", i, len(held), err)
		}
		held = append(held, c)
	}
	// The newest connections stay open, up to the limit; the others are closed.
	for i, c := range held {
		if err, kept := ask(c), i >= len(held)-most; (err == nil) != kept {
			t.Errorf("connection %d of %d: %v, want it kept: %v", i, len(held), err, kept)
		}
	}
}

// A socket can be created at a path that is too long for a socket's address, as in the state
// directory. Clients reach it by the directory's descriptor.
func TestListenAtLongSocketPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	l, err := ListenUnix(filepath.Join(dir, "status.sock"))
	testkit.Must(t, err)
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	fd, err := unix.Open(dir, unix.O_PATH, 0)
	testkit.Must(t, err)
	defer unix.Close(fd)
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/status.sock", fd))
	testkit.Must(t, err)
	testkit.Must(t, c.Close())
	testkit.Must(t, l.Close())
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %v, %v", left, err)
	}
}

// A file in the place of a socket is an error with a sentinel, and stays.
func TestListenKeepsFileInPlaceOfSocket(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	testkit.Must(t, os.WriteFile(file, []byte("content"), 0o600))
	if _, err := ListenUnix(file); !errdefs.IsAlreadyExists(err) {
		t.Errorf("found %v, want that a file exists", err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "content" {
		t.Errorf("the file: %q, %v", data, err)
	}
}

// A socket at which another process listens stays, and one that is lost ends the listener.
func TestListenKeepsSocketOfLiveListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	first, err := ListenUnix(path)
	testkit.Must(t, err)
	if l, err := ListenUnix(path); !errdefs.IsAlreadyExists(err) {
		t.Errorf("a second listener: %v, %v", l, err)
	}
	testkit.Must(t, os.Remove(path))
	lost := make(chan error, 1)
	go func() {
		for {
			conn, err := first.Accept()
			if err != nil {
				lost <- err
				return
			}
			conn.Close() // the attempt of the second listener
		}
	}()
	second, err := ListenUnix(path)
	testkit.Must(t, err)
	if err := <-lost; !errdefs.IsNotFound(err) {
		t.Errorf("the first listener, whose socket was replaced: %v", err)
	}
	testkit.Must(t, first.Close())
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the first listener removed the socket of the second: %v", err)
	}
	testkit.Must(t, second.Close())
}
