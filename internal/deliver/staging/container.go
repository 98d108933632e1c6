// SPDX-License-Identifier: Apache-2.0

package staging

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// validateContainer refuses paths that lead out of the staging directory.
func validateContainer(c *edit.Container) error {
	if err := checkIDs(c.SandboxID, c.ID); err != nil {
		return err
	}
	for _, f := range c.Files {
		if f.Name == "" || f.Name[0] == '.' || strings.ContainsRune(f.Name, '/') {
			return invalidPart(c, "file name", f.Name)
		}
	}
	return validatePlaces(c)
}

func invalidPart(c *edit.Container, what, name string) error {
	return errdefs.ErrInvalidArgument.WithMessage(fmt.Sprintf("stage container %q: invalid %s %q", c.ID, what, name))
}

// validatePlaces refuses directories and places of sockets outside of the staging directory.
func validatePlaces(c *edit.Container) error {
	for _, d := range c.Dirs {
		if !isLocal(d.Path) {
			return invalidPart(c, "directory", d.Path)
		}
	}
	for _, k := range c.Sockets {
		if !isLocal(k.Rel) {
			return invalidPart(c, "socket", k.Rel)
		}
		for _, at := range k.At {
			if !isLocal(at) || !c.HasDir(filepath.Dir(at)) {
				return invalidPart(c, "place of a socket", at)
			}
		}
	}
	for _, d := range c.SocketDirs {
		if !isLocal(filepath.Clean(d.Rel)) {
			return invalidPart(c, "socket directory", d.Rel)
		}
		if d.At != "" && !c.HasDir(d.At) {
			return invalidPart(c, "place of a socket directory", d.At)
		}
	}
	return nil
}

// isLocal reports whether a path is clean and does not leave the directory it begins in.
func isLocal(p string) bool {
	return p != "" && p != "." && filepath.Clean(p) == p && filepath.IsLocal(p) && strings.IndexByte(p, 0) < 0
}

func checkIDs(sandboxID, containerID string) error {
	return errors.Join(checkID("container", containerID), checkID("sandbox", sandboxID))
}

// checkID refuses an ID that is no safe file name.
func checkID(what, id string) error {
	if err := hostfs.CheckID(id); err != nil {
		return fmt.Errorf("%s ID: %w", what, err)
	}
	return nil
}
