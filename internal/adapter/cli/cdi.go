// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/report/manifest"
	"github.com/jackfield/jackfield/internal/report/orphans"
)

func cdiCommand(env Env) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "cdi",
		Short: "Generate CDI files, and remove those of removed owners",
	}, commandGroup(&cobra.Command{
		Use:   "generate",
		Short: "Generate CDI files with a vendor's tool",
	}, generateNvidiaCommand(env)), transientCommand(env))
}

const transientLong = `transient lists CDI files that belong to a container or a resource claim. Their
names are VENDOR-CLASS_ID.json or .yaml, in the last of the CDI directories, where
CDI's libraries write them.

--alive names a file with the IDs of living owners, one a line; - is standard
input. Then only the files of other owners are listed, if they are older than
--older-than, which protects an owner that was created after the list. --remove
removes them. A list of UIDs, or of a runtime's IDs, is about files that have such
an ID in their names, and no others. An empty list, or one with several words on a
line, is refused: a failed command prints such a list.`

func transientCommand(env Env) *cobra.Command {
	var (
		n      hostFlags
		out    output
		alive  string
		remove bool
		age    time.Duration
	)
	cmd := &cobra.Command{
		Use:   "transient",
		Short: "List the CDI files of containers and claims, and remove those of removed owners",
		Long:  transientLong,
		Example: "  jackfield cdi transient\n" +
			"  kubectl get resourceclaims -A -o \\\n" +
			"      jsonpath='{range .items[*]}{.metadata.uid}{\"\\n\"}{end}' |\n" +
			"      jackfield cdi transient --alive - --remove",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case (remove || cmd.Flags().Changed("older-than")) && alive == "":
				return usagef(cmd, "--remove and --older-than require --alive: the IDs of the living owners")
			case age < 0:
				return usagef(cmd, "--older-than: invalid value %s: must not be negative", age)
			}
			registry, local, err := n.openRegistry(cmd, env, false)
			if err != nil {
				return err
			}
			defer registry.Close()
			list := orphans.TransientSpecs(registry.Snapshot())
			none := "no CDI files of containers or claims"
			if alive != "" {
				ids, err := readIDs(env, alive)
				if err != nil {
					return err
				}
				list = orphans.WithoutOwner(list, ids, time.Now().Add(-age))
				none = "no CDI files of removed containers or claims"
			}
			if len(list) == 0 && out.isText() {
				dirs := registry.Snapshot().Dirs()
				env.message("%s in %s", none, dirs[len(dirs)-1].Path)
				return nil
			}
			files := transientFiles(list)
			if !remove {
				return out.writeResult(env, files, func() string { return transientsText(files) })
			}
			removed, err := orphans.Remove(local.host, list)
			files = slices.DeleteFunc(files, func(f transientFile) bool { return !slices.Contains(removed, f.File) })
			return errors.Join(err, out.writeResult(env, files, func() string { return pathsText(removed) }))
		},
	}
	cmd.Flags().StringVar(&alive, "alive", "", "`file` with the IDs of living owners, - for standard input")
	cmd.Flags().DurationVar(&age, "older-than", orphans.DefaultAge, "with --alive, list only files that are older than "+
		"this `DURATION`")
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the files of removed owners, and print their paths")
	n.addFlags(cmd)
	out.addFlag(cmd)
	return cmd
}

// transientFile is a CDI file of a container or a resource claim.
type transientFile struct {
	Owner   string    `json:"owner"` // the ID, with "_" for each "/" in it
	Kind    string    `json:"kind"`
	Changed time.Time `json:"changed"`
	File    string    `json:"file"`
}

func transientFiles(list []orphans.TransientSpec) []transientFile {
	files := make([]transientFile, len(list))
	for i, t := range list {
		files[i] = transientFile{t.ID, t.File.Kind, t.File.ModTime.UTC(), t.File.Path}
	}
	return files
}

func transientsText(files []transientFile) string {
	var t table
	t.addRow("OWNER", "KIND", "CHANGED", "FILE")
	for _, f := range files {
		t.addRow(f.Owner, f.Kind, f.Changed.Format("2006-01-02 15:04:05"), f.File)
	}
	return t.formatText("")
}

// readIDs reads a list of IDs, one a line.
func readIDs(env Env, file string) ([]string, error) {
	text, err := manifest.ReadInput(file, env.Stdin)
	if err != nil {
		return nil, fmt.Errorf("read IDs from %q: %w", file, err)
	}
	var ids []string
	for i, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		if len(words) > 1 {
			// A table, or the message of a failed command, is no list of owners.
			return nil, fmt.Errorf("read IDs from %q: line %d: invalid value %s: must be one ID a line: %w", file, i+1,
				diag.Quote(strings.TrimSpace(line)), errdefs.ErrInvalidArgument)
		}
		ids = append(ids, words...)
	}
	if len(ids) == 0 {
		return nil, fmt.Errorf("read IDs from %q: the list is empty, and would remove the files of every owner: %w", file,
			errdefs.ErrInvalidArgument)
	}
	return ids, nil
}
