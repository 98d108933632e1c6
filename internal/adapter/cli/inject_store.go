// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/deliver/staging"
	"github.com/jackfield/jackfield/internal/edit"
)

// prepare creates the files and mounts that a container needs. undo removes it again, unless the container had
// something before.
func (in *injection) prepare(c edit.Container) (undo func() error, err error) {
	if c.ID == "" {
		return nil, fmt.Errorf("its sockets and devices need a directory on this host: name the container with "+
			"--container-id, "+
			"and when it is gone run `jackfield inject --remove --container-id ID`: %w", errdefs.ErrFailedPrecondition)
	}
	c.SandboxID = cmp.Or(c.SandboxID, c.ID)
	_, err = in.host.Lstat(edit.ContainerDir(in.storeDir(), c.ID))
	fresh := errdefs.IsNotFound(err)
	store, err := in.openStore()
	if err != nil {
		return nil, err
	}
	if err := store.SweepClaims(); err != nil {
		return nil, err
	}
	if err := store.Prepare(c); err != nil {
		return nil, err
	}
	return func() error {
		if !fresh {
			return nil
		}
		err := store.RemoveContainer(c.SandboxID, c.ID)
		if c.SandboxID == c.ID {
			err = errors.Join(err, store.RemoveIdleSandbox(c.SandboxID))
		}
		return err
	}, nil
}

// storeDir is the host path of the containers' state. It lies beside the directory of the NRI plugin,
// which removes everything that its runtime does not know.
func (in *injection) storeDir() string { return staging.InjectDir(in.cfg.StateDir) }

func (in *injection) openStore() (*staging.Store, error) {
	return staging.Open(in.host, in.storeDir(), staging.Options{Mode: staging.ModeDirectory, Owner: staging.InjectOwner})
}

// recordID returns the ID under which the container's things are kept: the flag's, or one made from the
// bundle's path. Names of bundles are not unique: Podman calls each "userdata".
func (in *injection) recordID() (string, error) {
	if in.containerID != "" || in.file.bundle == "" {
		return in.containerID, nil
	}
	dir, err := filepath.Abs(in.file.bundle)
	if err != nil {
		return "", fmt.Errorf("find bundle %q: %w", in.file.bundle, err)
	}
	// With --remove the bundle may be gone.
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	sum := sha256.Sum256([]byte(dir))
	name := regexp.MustCompile("[^A-Za-z0-9_-]").ReplaceAllString(filepath.Base(dir), "-")
	return name[:min(len(name), 100)] + "-" + hex.EncodeToString(sum[:6]), nil
}

// runRemove removes the state of a container, or for all containers of a sandbox. It is no
// error if nothing was.
func (in *injection) runRemove(cmd *cobra.Command) error {
	whose := 0
	for _, flag := range []string{"bundle", "container-id", "sandbox-id"} {
		if cmd.Flags().Changed(flag) {
			whose++
		}
	}
	for _, flag := range []string{"spec", "output", "cdi-device", "annotation", "namespace", "pod", "container"} {
		if cmd.Flags().Changed(flag) {
			return usagef(cmd, "--remove and --%s do not go together", flag)
		}
	}
	if whose != 1 || in.file.bundle+in.containerID+in.sandboxID == "" {
		return usagef(cmd, "--remove requires one of --bundle, --container-id and --sandbox-id")
	}
	id, err := in.recordID()
	if err != nil {
		return err
	}
	in.flags.requireOwner = true // the file decides which devices containers get
	if in.localNode, err = in.flags.openNode(cmd); err != nil {
		return err
	}
	if _, err := in.host.Lstat(in.storeDir()); errdefs.IsNotFound(err) {
		return nil
	}
	store, err := in.openStore()
	if err != nil {
		return err
	}
	if in.sandboxID != "" {
		return store.RemoveSandbox(in.sandboxID)
	}
	// The container may be of any sandbox, or be its own.
	return errors.Join(store.RemoveContainerByID(id), store.RemoveSandbox(id))
}
