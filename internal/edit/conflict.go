// SPDX-License-Identifier: Apache-2.0

package edit

import (
	"cmp"
	"fmt"
	"path"

	"github.com/containerd/errdefs"
)

// existing is the origin of everything that the container has before any edit.
var existing = Origin{Request: "the container as the runtime created it"}

// NewConflict returns the errdefs.ErrConflict of two edits that claim the same path, variable or network
// device. The detail can be "".
func NewConflict(kind, name string, first, second Origin, detail string) error {
	text := fmt.Sprintf("%s %q is claimed twice: by %s and by %s", kind, name, first, second)
	if detail != "" {
		text += ": " + detail
	}
	return errdefs.ErrConflict.WithMessage(text)
}

// HiddenDevice returns an errdefs.ErrConflict if a bind mount that the container has hides a device node of the edits,
// or nil. A mount of the edits is the decision of the file's author.
//
// OCI runtimes make the nodes after the mounts. They make none at all if /dev is a bind mount, and none where a file
// exists. In another mounted directory the node would be made on the host, in a volume.
func (b *Builder) HiddenDevice() error {
	for i := range b.devices.items {
		d := &b.devices.items[i]
		for j := range b.have.Mounts {
			m := &b.have.Mounts[j]
			rel, isUnder := below(m.Destination, d.Path)
			// A directory of the host that has the device itself shows the node.
			if !isUnder || !m.isBind() || b.isReplacedMount(m) ||
				path.Join(m.Source, rel) == path.Clean(cmp.Or(d.HostPath, d.Path)) {
				continue
			}
			return NewConflict("device path", d.Path, existing, d.Origin, fmt.Sprintf(
				"%q of the host is mounted on %q, and the runtime can make no node there: mount it elsewhere",
				m.Source, m.Destination))
		}
	}
	return nil
}
