// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/edit"
)

// stager brings sockets and socket directories into the directory of a container that is created.
type stager struct {
	sockets    *hostSockets
	containers *containerDirs
	lock       *stateLock
}

// stageDir creates a socket directory, and mounts it at its place.
func (g *stager) stageDir(c *edit.Container, d *edit.SocketDir) error {
	fd, err := g.sockets.makeDir(c.SandboxID, d)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if c.Successor {
		if err := g.sockets.dirs.RemoveStaleSockets(filepath.Join(d.Root, d.Rel), c.SandboxID, fd); err != nil {
			return g.containers.stagingError(c, edit.WithOrigin(d.From, err))
		}
	}
	if d.At == "" || g.containers.status.Mode != ModeMount {
		return nil
	}
	err = g.lock.run(func() error { return bindFD(fd, filepath.Join(g.containers.dir, c.ID, d.At), restrictedAttrs) })
	if err != nil {
		return g.containers.stagingError(c, edit.WithOrigin(d.From, err))
	}
	return nil
}

// maxMisses limits how often a socket that is missing is opened, a millisecond apart. maxLosses is the limit for a
// socket that was opened and disappeared before it was bound: each attempt is as likely to lose as the one before.
const maxMisses, maxLosses = 5, 100

// stageSocket binds a socket of the host at its places. A vswitch that is re-creating the socket gets some time.
func (g *stager) stageSocket(c *edit.Container, k *edit.Socket) error {
	for misses, losses := 0, 0; ; time.Sleep(time.Millisecond) {
		lost, err := g.openAndBind(c, k)
		switch {
		case lost:
			losses++
		case errors.Is(err, unix.ENOENT):
			misses++
		default:
			return err
		}
		if misses == maxMisses || losses == maxLosses {
			return err
		}
	}
}

// openAndBind opens the socket that is at its path now, and binds it at its places. It reports
// a socket as lost that disappeared in between.
func (g *stager) openAndBind(c *edit.Container, k *edit.Socket) (lost bool, err error) {
	fd, err := g.sockets.openFor(c, k)
	switch {
	case err == nil:
		defer unix.Close(fd)
	case !k.Await || g.containers.status.Mode != ModeMount || !errdefs.IsNotFound(err):
		return false, edit.WithOrigin(k.From, err)
	}
	if err := g.lock.run(func() error { return g.containers.bindSocket(c, k, fd) }); err != nil {
		return isUnlinked(fd), g.containers.stagingError(c, err)
	}
	return false, nil
}
