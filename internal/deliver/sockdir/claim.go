// SPDX-License-Identifier: Apache-2.0

package sockdir

import (
	"fmt"
	"slices"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// The adapters that claim directories.
const (
	NRI    = "nri"
	Hook   = "hook"
	Inject = "inject"
	CNI    = "cni"
)

// Holder is a sandbox that has a directory or a socket, and the adapter that delivered it.
type Holder struct {
	Sandbox string `json:"sandbox"`
	Adapter string `json:"adapter"`
	// StateDir is the host path of the state directory with the adapter's record of the sandbox.
	StateDir string `json:"stateDir,omitempty"`
}

// claim is the content of one claim file: the holders of a directory or a socket.
type claim struct {
	// Holders of a directory all belong to one sandbox.
	Holders []Holder `json:"holders"`
	creation
}

// creation is the directories that one holder of a directory created. It is empty for a directory that existed before.
type creation struct {
	Creator *Holder `json:"creator,omitempty"`
	// Pending means that the directory was about to be created. It is removed if it is empty.
	Pending bool `json:"pending,omitempty"`
	// Created identifies the directory.
	Created *hostfs.FileID `json:"created,omitempty"`
	// Mounted identifies the root of the tmpfs that limits the directory. It is mounted on the created directory.
	Mounted *hostfs.FileID `json:"mounted,omitempty"`
	// Parents are the directories above it that were created for it. They are removed if they are empty.
	Parents []parentDir `json:"parents,omitempty"`
}

// parentDir is a created directory above a socket directory.
type parentDir struct {
	Path     string         `json:"path"`               // host path
	Identity *hostfs.FileID `json:"identity,omitempty"` // nil before it is created
}

// checkClaim checks that the parents of a claim lie above its directory.
func checkClaim(file string, c *claim) error {
	path, _ := pathOfFile(file)
	for _, p := range c.Parents {
		if !isClean(p.Path) || p.Path == path || !within(p.Path, path) {
			return fmt.Errorf("parents: invalid value %q: must be a directory above %q", p.Path, path)
		}
	}
	return nil
}

// isCreated reports whether a directory was created for the sandbox: it is the directory itself, or the root of the
// file system that is mounted on it.
func (c *claim) isCreated(id hostfs.FileID) bool {
	return c.Created != nil && *c.Created == id || c.Mounted != nil && *c.Mounted == id
}

// isCreatedBy reports whether a holder created the directory, or was about to.
func (c *claim) isCreatedBy(h Holder) bool { return c.Creator != nil && *c.Creator == h }

// otherHolder returns the first holder of another sandbox, nil for none.
func (c *claim) otherHolder(sandbox string) *Holder {
	i := slices.IndexFunc(c.Holders, func(h Holder) bool { return h.Sandbox != sandbox })
	if i < 0 {
		return nil
	}
	return &c.Holders[i]
}
