// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// distrust is why an inode is not believed, "" when it is: found and rule for a
// diagnostic. Whoever can write a spec file can have anything mounted and run
// as root in a container, so only root and the process's own user may. In a user
// namespace, as under rootless Podman, root of the host is seen as everybody is who
// has no uid there; these are believed, since what they decide runs as that user.
func (r *Registry) distrust(what, path string, mode, uid uint32) (found, rule string) {
	if r.opts.Trust == TrustAnyone {
		return "", ""
	}
	perm := mode & 0o7777
	if uid != 0 && uid != r.euid && !r.outsider(uid) {
		return fmt.Sprintf("%s %q owned by uid %d, mode %04o", what, path, uid, perm),
			fmt.Sprintf("a spec %s must belong to root, or somebody else decides what runs as root; run `chown root %s`", what, path)
	}
	if perm&0o022 != 0 {
		return fmt.Sprintf("%s %q with mode %04o", what, path, perm),
			fmt.Sprintf("a spec %s must be writable by its owner alone; %s", what, hostfs.WriteRemedy(path, mode))
	}
	return "", ""
}

// distrustFile is distrust as the error of a file.
func (r *Registry) distrustFile(e *entry, what, path string, st *unix.Stat_t) *SpecError {
	found, rule := r.distrust(what, path, st.Mode, st.Uid)
	if rule == "" {
		return nil
	}
	return refusedTrust(e.path(), found, rule)
}

// outsider reports that a uid stands for users outside of this process's user
// namespace.
func (r *Registry) outsider(uid uint32) bool {
	o, inside := r.outside()
	return inside && uid == o.Unmapped
}
