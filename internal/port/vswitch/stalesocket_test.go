// SPDX-License-Identifier: Apache-2.0

package vswitch

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

func TestRemoveStaleSocketRemovesOnlySocketsOnWhichNobodyListens(t *testing.T) {
	for protocol, network := range map[Type]string{VhostUser: "unix", Memif: "unixpacket"} {
		// Short, for the sake of socket paths.
		dir, err := os.MkdirTemp("", "stale")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		listen := func(name, network string) net.Listener {
			l, err := net.Listen(network, filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			t.Cleanup(func() { l.Close() })
			return l
		}
		listen("stale", network).Close()
		listen("listening", network)
		listen("other", map[string]string{"unix": "unixpacket", "unixpacket": "unix"}[network])
		if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		listen("target", network).Close()
		if err := os.Symlink("target", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		for name, kept := range map[string]bool{"stale": false, "missing": false, "listening": true, "other": true, "file": true, "link": true, "no-directory/sock": false} {
			path := filepath.Join(dir, name)
			err := RemoveStaleSocket(hostfs.Host(), protocol, path)
			if kept != errors.Is(err, errdefs.ErrAlreadyExists) || !kept && err != nil {
				t.Errorf("%s, %s: %v", protocol, name, err)
			}
			if _, err := os.Lstat(path); kept != (err == nil) {
				t.Errorf("%s, %s: %v afterwards", protocol, name, err)
			}
		}
		if _, err := os.Lstat(filepath.Join(dir, "target")); err != nil {
			t.Errorf("%s: the target of a symlink: %v", protocol, err)
		}
	}
}
