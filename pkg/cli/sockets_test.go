// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/status"
)

// listenAt creates a socket, and connects to it.
func listenAt(t *testing.T, path string, connections int) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for range connections {
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close(); server.Close() })
	}
}

// The connections of a socket are counted by its file, whichever path its server and its clients use.
func TestPeersOfSocketsAreCounted(t *testing.T) {
	dir := t.TempDir()
	listenAt(t, filepath.Join(dir, "two"), 2)
	listenAt(t, filepath.Join(dir, "none"), 0)
	gone, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "gone")})
	if err != nil {
		t.Fatal(err)
	}
	gone.SetUnlinkOnClose(false)
	gone.Close()
	var sockets []status.PlacedSocket
	for _, name := range []string{"two", "none", "gone"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, status.PlacedSocket{Path: name, Device: st.Dev, Inode: st.Ino})
	}
	sockets = append(sockets, status.PlacedSocket{Path: "awaited"})
	if err := fillPeers(sockets); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{2, 0, -1, -1} {
		got := -1
		if p := sockets[i].Peers; p != nil {
			got = *p
		}
		if got != want {
			t.Errorf("%s has %d peers, want %d (-1 for unknown)", sockets[i].Path, got, want)
		}
	}
}

// Malformed answers of the kernel are ignored.
func FuzzAddConnection(f *testing.F) {
	f.Add([]byte{1, 1, 10, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 1, 0, 7, 0, 0, 0, 8, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, data []byte) { addConnection(map[socketFile]int{}, data) })
}

func TestSocketsText(t *testing.T) {
	now := time.Unix(1e9, 0).UTC()
	one := 1
	sockets := []status.PlacedSocket{
		{Namespace: "telco", Pod: "fwd-0", Container: "app", ContainerID: "77e1", Path: "/var/run/jackfield/net/net1/vhost.sock", HostPath: "/run/vsw/east/vhost.sock",
			State: "bound", Since: now.Add(-90 * time.Minute), Rebinds: 3, Peers: &one},
		{Namespace: "telco", Pod: "fwd-0", Container: "app", ContainerID: "77e1", Path: "/var/run/jackfield/net/net2/memif.sock", HostPath: "/run/vsw/west/memif.sock", State: "awaited"},
		{ContainerID: "8f20", Path: "/var/run/jackfield/net/net3", HostPath: "/run/vsw/x\x1b[31m", State: "directory", Since: now.Add(-50 * time.Hour)},
	}
	narrow := `CONTAINER        PATH                                    AGE  REBINDS  PEERS  STATE      HOST PATH
telco/fwd-0/app  /var/run/jackfield/net/net1/vhost.sock  90m  3        1      bound      /run/vsw/east/vhost.sock
telco/fwd-0/app  /var/run/jackfield/net/net2/memif.sock  -    0        ?      awaited    /run/vsw/west/memif.sock
8f20             /var/run/jackfield/net/net3             2d   -        -      directory  /run/vsw/x\x1b[31m
`
	if got := socketsText(sockets, false, now); got != narrow {
		t.Errorf("found\n%s\nwant\n%s", got, narrow)
	}
	const wide = `CONTAINER        PATH                                    AGE  REBINDS  PEERS  STATE  HOST PATH                 SINCE                 CONTAINER ID
telco/fwd-0/app  /var/run/jackfield/net/net1/vhost.sock  90m  3        1      bound  /run/vsw/east/vhost.sock  2001-09-09T00:16:40Z  77e1
`
	if got := socketsText(sockets[:1], true, now); got != wide {
		t.Errorf("found\n%s\nwant\n%s", got, wide)
	}
}
