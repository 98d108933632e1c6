// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/deliver/sockaccess"
	"github.com/jackfield/jackfield/internal/deliver/sockdir"
	"github.com/jackfield/jackfield/internal/edit"
)

// Rebound is a socket that was re-created and rebound.
type Rebound struct {
	Socket     string        // host path
	Containers int           // in how many it was bound
	Again      int           // in how many of them in place of an earlier socket
	Took       time.Duration // from the watcher's event to the last container
	Tenant     bool          // a tenant can write a directory on the way to the socket
}

// rebinder binds sockets that were created again in the containers that have them.
type rebinder struct {
	sockets    *hostSockets
	containers *containerDirs
	ready      *readyFiles
	lock       *stateLock
}

// bindings counts the containers in which a socket was bound, and those of them that had an earlier one.
type bindings struct{ containers, again int }

// rebind binds a socket in every container that has none or an older one at its place. It returns in
// how many, and whether a tenant can write a directory on the way to the socket.
func (b *rebinder) rebind(src *hostSocket) (bound bindings, tenant bool, err error) {
	src.checking.Lock()
	defer src.checking.Unlock()
	// Without the store's lock: the host's file systems may be slow.
	fd, err := b.sockets.open(&src.socket)
	claimants := b.sockets.dirs.Claimants(src.socket.HostPath())
	tenant = claimants.HasAny()
	if err != nil {
		return bindings{}, tenant, err
	}
	defer unix.Close(fd)
	err = b.lock.run(func() (err error) {
		bound, err = b.rebindAll(src, fd, claimants)
		return err
	})
	if err != nil && isUnlinked(fd) {
		// The watcher reports the next socket.
		err = errdefs.ErrNotFound.WithMessage(fmt.Sprintf("%q was removed meanwhile", src.socket.HostPath()))
	}
	return bound, tenant, err
}

// rebindAll binds the socket of a descriptor in all its containers. The lock is held.
func (b *rebinder) rebindAll(src *hostSocket, fd int, claimants sockdir.Claimants) (bindings, error) {
	var errs []error
	var places []bindPlace
	var rights []sockaccess.Request
	for _, id := range slices.Sorted(maps.Keys(src.containers)) {
		if b.ready.isRemoved(id) {
			continue
		}
		r := src.containers[id]
		for i := range r.Sockets {
			k := &r.Sockets[i]
			if k.HostPath() != src.socket.HostPath() {
				continue
			}
			if err := claimants.Check(r.SandboxID); err != nil {
				errs = append(errs, edit.WithOrigin(k.From, err))
				continue
			}
			for _, at := range k.At {
				places = append(places, bindPlace{container: id, target: filepath.Join(b.containers.dir, id, at), from: k.From})
			}
			name := b.sockets.records.name(r.SandboxID, id)
			rights = append(rights, sockaccess.Request{Container: name, Access: &k.Access, From: k.From})
		}
	}
	// Grant access before binding, so that an application can connect at once.
	errs = append(errs, b.sockets.rights.Grant(src.socket.HostPath(), fd, rights))
	had := make(map[string]bool) // containers with an earlier socket
	for _, p := range places {
		if _, ok := boundSocket(p.target); ok {
			had[p.container] = true
		}
	}
	rebound, err := replaceMounts(fd, places)
	bound := bindings{containers: len(rebound)}
	for id := range rebound {
		if had[id] {
			bound.again++
			src.containers[id].rebinds[src.socket.HostPath()]++
		}
	}
	return bound, errors.Join(append(errs, err)...)
}
