// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const installLong = `install copies programs of Jackfield from where this one lies, or --from, into a
directory: for an init container, whose image has no shell, that puts jackfield-cni
or jackfield-hook where the node's runtime runs it.

A program is put in place whole, by a rename: one that runs goes on with the old.
What is the same already is left alone. The directory must belong to root, or to the
caller, and nobody else may write to it: the runtime runs as root what is in there.`

// programs are what there is to be installed.
func programs() []string {
	return []string{"jackfield", "jackfield-cni", "jackfield-hook", "jackfield-nri"}
}

// maxProgram is more than any program of Jackfield has, in bytes.
const maxProgram = 256 << 20

func installCommand(env Env) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:     "install PROGRAM... --to DIR",
		Short:   "Copy Jackfield's programs into a directory of the node",
		Long:    installLong,
		Example: "  jackfield install jackfield-cni --to /opt/cni/bin",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "nothing to install: name one of %s", strings.Join(programs(), ", "))
			}
			for _, name := range args {
				if !slices.Contains(programs(), name) {
					return usagef(cmd, "found the program %q, want one of %s", name, strings.Join(programs(), ", "))
				}
			}
			if err := hostfs.CheckPath(to); err != nil {
				return usagef(cmd, "--to: %w", err)
			}
			if from == "" {
				self, err := os.Executable()
				if err != nil {
					return err
				}
				from = filepath.Dir(self)
			}
			if err := ownDir(to); err != nil {
				return err
			}
			for _, name := range args {
				what, err := install(filepath.Join(from, name), filepath.Join(to, name))
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(env.Stdout, "%s: %s\n", filepath.Join(to, name), what); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.ValidArgsFunction = completePrograms
	cmd.Flags().StringVar(&to, "to", "", "`directory` to copy into, an absolute path")
	cmd.Flags().StringVar(&from, "from", "", "`directory` that has the programs (default: this program's own)")
	return cmd
}

// ownDir refuses a directory that others can write to.
func ownDir(dir string) error {
	st, err := os.Stat(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return &hinted{err: fmt.Errorf("install into %q: there is no such directory: %w", dir, errdefs.ErrNotFound),
				hint: "check the path; a directory that the runtime is to read can be created with `mkdir -p -m 0755 " + dir + "`"}
		}
		return fmt.Errorf("install into %q: %w", dir, err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	switch {
	case !st.IsDir():
		return fmt.Errorf("install into %q: it is not a directory: %w", dir, errdefs.ErrInvalidArgument)
	case ok && sys.Uid != 0 && int(sys.Uid) != os.Geteuid():
		return fmt.Errorf("install into %q: it belongs to uid %d, who can replace what root runs; choose a directory that belongs to root: %w", dir, sys.Uid, errdefs.ErrPermissionDenied)
	case ok && sys.Mode&0o022 != 0:
		return fmt.Errorf("install into %q: it has mode %04o, and others can replace what root runs; %s: %w", dir, sys.Mode&0o7777, hostfs.WriteRemedy(dir, sys.Mode), errdefs.ErrPermissionDenied)
	}
	return nil
}

// install copies one program, and says what it did.
func install(from, to string) (what string, err error) {
	st, err := os.Stat(from)
	if err != nil {
		return "", fmt.Errorf("install %q: %w", from, err)
	}
	if !st.Mode().IsRegular() || st.Size() > maxProgram {
		return "", fmt.Errorf("install %q: it is no program of at most %d bytes: %w", from, maxProgram, errdefs.ErrInvalidArgument)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return "", fmt.Errorf("install %q: %w", from, err)
	}
	if there, err := os.Lstat(to); err == nil && there.Mode() == 0o755 && there.Size() == int64(len(data)) {
		if have, err := os.ReadFile(to); err == nil && bytes.Equal(have, data) {
			return "as it was", nil
		}
	}
	// A name that nobody reads, until the program is whole.
	tmp := filepath.Join(filepath.Dir(to), "."+filepath.Base(to)+".new")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("install %q: %w", to, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("install %q: %w", to, err), ignoreMissing(os.Remove(tmp)))
		}
	}()
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(0o755), f.Sync(), f.Close()); err != nil {
		return "", err
	}
	return "installed", os.Rename(tmp, to)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
