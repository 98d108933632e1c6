// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/trust"
)

const copyProgramsLong = `copy-programs copies programs of Jackfield from this program's directory, or --from,
into another directory. An init container, whose image has no shell, copies
jackfield-cni or jackfield-hook this way to where the node's runtime runs it.

A program is replaced in one step; a running one continues with the old file. A
program with the same content is not replaced, unless it belongs to another user
than root and the caller. The directory must belong to root or the caller, and no
other user may write to it: the runtime runs its programs as root.`

// programs returns the names of all programs of Jackfield.
func programs() []string {
	return []string{
		"jackfield", "jackfield-cni", "jackfield-hook", "jackfield-netavark", "jackfield-nri", "jackfield-run", "kubectl-jackfield",
	}
}

// maxProgram bounds the size of a program, in bytes.
const maxProgram = 256 << 20

func copyProgramsCommand(env Env) *cobra.Command {
	var from, to string
	cmd := &cobra.Command{
		Use:     "copy-programs PROGRAM... --to DIR",
		Short:   "Copy Jackfield's programs into a directory of the node",
		Long:    copyProgramsLong,
		Example: "  jackfield copy-programs jackfield-cni --to /opt/cni/bin",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef(cmd, "PROGRAM is missing: must be one or more of %s", strings.Join(programs(), ", "))
			}
			for _, name := range args {
				if !slices.Contains(programs(), name) {
					return usagef(cmd, "unknown program %q: must be one of %s", name, strings.Join(programs(), ", "))
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
			if err := checkTargetDir(to); err != nil {
				return err
			}
			for _, name := range args {
				result, err := copyProgram(filepath.Join(from, name), filepath.Join(to, name))
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintf(env.Stdout, "%s: %s\n", filepath.Join(to, name), result); err != nil {
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

// checkTargetDir refuses a directory that other users can write to.
func checkTargetDir(dir string) error {
	var st unix.Stat_t
	err := unix.Stat(dir, &st)
	switch {
	case errors.Is(err, unix.ENOENT):
		return &hintedError{err: fmt.Errorf("copy into %q: there is no such directory: %w", dir, errdefs.ErrNotFound),
			hint: "check the path; a directory that the runtime is to read can be created with `mkdir -p -m 0755 " + dir + "`"}
	case err != nil:
		return fmt.Errorf("copy into %q: %w", dir, err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("copy into %q: it is not a directory: %w", dir, errdefs.ErrInvalidArgument)
	}
	if bad := trust.Check(dir, &st, trust.Options{}); bad != nil {
		return fmt.Errorf("copy into %w", bad)
	}
	return nil
}

// copyProgram copies one program. The result is a word for the user.
func copyProgram(from, to string) (result string, err error) {
	data, err := readProgram(from)
	if err != nil {
		return "", fmt.Errorf("copy %q: %w", from, err)
	}
	var there unix.Stat_t
	if err := unix.Lstat(to, &there); err == nil && there.Mode == unix.S_IFREG|0o755 &&
		trust.Check(to, &there, trust.Options{}) == nil {
		if have, err := readProgram(to); err == nil && bytes.Equal(have, data) {
			return "unchanged", nil
		}
	}
	if err := hostfs.Host().Replace(to, data, hostfs.Own(0o755)); err != nil {
		return "", fmt.Errorf("copy %q: %w", to, err)
	}
	return "copied", nil
}

func readProgram(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, hostfs.WithoutPath(err)
	}
	defer f.Close()
	return hostfs.ReadRegular(int(f.Fd()), maxProgram)
}
