// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// OwnDir is one of Jackfield's own directories that the NRI plugin opens while the runtime waits.
// Its parents are checked until they are trusted once, because afterwards only root can change
// them. Checking them for each container makes BenchmarkNRICreateContainer miss its target.
type OwnDir struct {
	host    hostfs.Root
	path    string
	trusted atomic.Bool
}

// NewOwnDir returns the directory with this host path. It need not exist.
func NewOwnDir(host hostfs.Root, path string) *OwnDir { return &OwnDir{host: host, path: path} }

// Open is [OpenOwnDir].
func (d *OwnDir) Open() (*os.File, error) {
	if d.trusted.Load() {
		if f := d.reopen(); f != nil {
			return f, nil
		}
	}
	f, err := OpenOwnDir(d.host, d.path)
	d.trusted.Store(err == nil)
	return f, err
}

// Make is [MakeOwnDir].
func (d *OwnDir) Make(perm uint32) (*os.File, error) { return MakeOwnDir(d.host, d.path, perm) }

// reopen opens the directory below trusted parents. If anything else is at the path, it returns
// nil, and OpenOwnDir reports the reason.
func (d *OwnDir) reopen() *os.File {
	at := withoutVarRun(d.host, d.path)
	fd, err := d.host.OpenNoSymlinks(at, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || checkComponent(at, &st, Options{}) != nil {
		unix.Close(fd)
		return nil
	}
	return os.NewFile(uintptr(fd), at)
}
