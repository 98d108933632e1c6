// SPDX-License-Identifier: Apache-2.0

package status

import (
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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
	var sockets []PlacedSocket
	for _, name := range []string{"two", "none", "gone"} {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		sockets = append(sockets, PlacedSocket{Path: name, Device: st.Dev, Inode: st.Ino})
	}
	sockets = append(sockets, PlacedSocket{Path: "awaited"})
	if err := FillPeers(sockets); err != nil {
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
