// SPDX-License-Identifier: Apache-2.0

package hostsocket

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/jackfield/jackfield/test/parts"
)

// Storage is where QEMU's storage daemon is.
type Storage struct{ Program, Libraries string }

// PrepareStorage fetches QEMU's storage daemon.
func PrepareStorage(ctx context.Context) (Storage, error) {
	store, err := parts.Open()
	if err != nil {
		return Storage{}, err
	}
	got, err := store.Ensure(ctx, parts.StorageDaemon()...)
	if err != nil {
		return Storage{}, err
	}
	s := Storage{Program: got[0].Path("usr/bin/qemu-storage-daemon")}
	var libraries []string
	for _, p := range got[1:] {
		for _, pattern := range []string{"usr/lib/*-linux-gnu*", "lib/*-linux-gnu*"} {
			found, err := filepath.Glob(p.Path(pattern))
			if err != nil {
				return Storage{}, err
			}
			libraries = append(libraries, found...)
		}
	}
	s.Libraries = strings.Join(libraries, ":")
	return s, nil
}

// Command returns the command that exports a disk image over vhost-user-blk at a path.
func (s Storage) Command(image, path string) *exec.Cmd {
	cmd := exec.Command(s.Program, "--blockdev", "driver=file,node-name=disk,filename="+image,
		"--export", "type=vhost-user-blk,id=export,node-name=disk,writable=off,addr.type=unix,addr.path="+path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "LD_LIBRARY_PATH=" + s.Libraries}
	return cmd
}
