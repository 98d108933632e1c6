// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/internal/report/manifest"
	"github.com/jackfield/jackfield/internal/report/orphans"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const infoCleanLong = `clean removes device-info files in one of three forms, and prints the path of
each file that it removes. --dry-run prints the same and removes nothing.

  --sandbox-id ID            files of a removed sandbox, as at CNI DEL (§4.2.1)
  --resource R --device ID   file of a device, as its plugin stops (§4.1.1)
  --orphans                  files of network attachments of all removed sandboxes

For --orphans, --keep-sandboxes names the sandboxes that live: a comma list, or -
for standard input. A file is removed only if its name has the ID of a sandbox (64
hexadecimal digits, as containerd and CRI-O have it), if no ID to keep begins that
ID, if no record of jackfield-netavark or jackfield-cni shows that the container lives,
and if the file is older than --older-than, which protects a sandbox that was created
after the list. An empty list is refused: a failed command prints one.`

func infoCleanCommand(env Env) *cobra.Command {
	var (
		n hostFlags
		c cleanCommand
	)
	cmd := &cobra.Command{
		Use:   "clean {--sandbox-id ID | --resource NAME --device ID | --orphans --keep-sandboxes ID,...}",
		Short: "Remove device-info files of removed sandboxes and devices",
		Long:  infoCleanLong,
		Example: "  jackfield deviceinfo clean --sandbox-id ID\n" +
			"  crictl pods -q |\n" +
			"      jackfield deviceinfo clean --orphans --keep-sandboxes - --dry-run",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.checkFlags(cmd); err != nil {
				return err
			}
			local, err := n.openNode(cmd)
			if err != nil {
				return err
			}
			c.env, c.localNode = env, local
			switch {
			case c.orphans:
				return c.removeOrphans(cmd)
			case c.sandbox != "":
				return c.removeSandbox()
			}
			return c.removeDevice()
		},
	}
	cmd.Flags().StringVar(&c.sandbox, "sandbox-id", "", "`ID` of a removed sandbox")
	cmd.Flags().StringVar(&c.resource, "resource", "", "`name` of the extended resource, such as intel.com/sriov")
	cmd.Flags().StringVar(&c.device, "device", "", "`ID` of the device, as the device plugin names it")
	cmd.Flags().BoolVar(&c.orphans, "orphans", false, "the files of all sandboxes but the kept ones")
	cmd.Flags().StringSliceVar(&c.keep, "keep-sandboxes", nil, "`IDs` of living sandboxes, - for standard input")
	cmd.Flags().DurationVar(&c.age, "older-than", orphans.DefaultAge,
		"with --orphans, remove only files that are older than this `DURATION`")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "print what would be removed, and remove nothing")
	n.addFlags(cmd)
	c.out.addFlag(cmd)
	return cmd
}

// removedFile is a file that clean removed, or would remove with --dry-run.
type removedFile struct {
	File string `json:"file"`
}

type cleanCommand struct {
	env Env
	out output
	localNode
	sandbox          string
	resource, device string // of a device plugin
	orphans          bool
	keep             []string
	age              time.Duration
	dryRun           bool
}

// checkFlags accepts exactly one of the three forms, with all flags it needs.
func (c *cleanCommand) checkFlags(cmd *cobra.Command) error {
	byDevice := c.resource != "" || c.device != ""
	forms := 0
	for _, form := range []bool{c.sandbox != "", byDevice, c.orphans} {
		if form {
			forms++
		}
	}
	// Exactly one form is given, with all flags that it needs.
	switch {
	case forms != 1:
		return usagef(cmd, "must have one of --sandbox-id, --resource with --device, and --orphans")
	case byDevice && c.resource == "":
		return usagef(cmd, "--resource is missing")
	case byDevice && c.device == "":
		return usagef(cmd, "--device is missing")
	case byDevice:
		return nil
	case !c.orphans && (c.keep != nil || cmd.Flags().Changed("older-than")):
		return usagef(cmd, "--keep-sandboxes and --older-than go with --orphans only")
	case c.orphans && c.keep == nil:
		return usagef(cmd, "--orphans requires --keep-sandboxes: the IDs of the living sandboxes")
	case c.age < 0:
		return usagef(cmd, "--older-than: invalid value %s: must not be negative", c.age)
	}
	return nil
}

// removeSandbox removes the files of a sandbox (§4.2.1). A dry run lists them.
func (c *cleanCommand) removeSandbox() error {
	entries, err := deviceinfo.CNIDir{Root: c.host.Dir(), Dir: c.cfg.DeviceInfo.CNIDir}.ReadSandbox(c.sandbox)
	var files []string
	for _, e := range entries {
		files = append(files, e.File)
	}
	slices.Sort(files)
	if !c.dryRun {
		files, err = c.cniDir().RemoveSandbox(c.sandbox)
	}
	return c.printRemoved(files, err, "no device-info files of sandbox %s in %s", c.sandbox, c.cfg.DeviceInfo.CNIDir)
}

// printRemoved prints the paths of removed files. Without such a file and without an error, it prints a message.
func (c *cleanCommand) printRemoved(files []string, err error, none string, args ...any) error {
	if err == nil && len(files) == 0 && c.out.isText() {
		c.env.message(none, args...)
		return nil
	}
	removed := make([]removedFile, len(files))
	for i, file := range files {
		removed[i] = removedFile{file}
	}
	return errors.Join(err, c.out.writeResult(c.env, removed, func() string { return pathsText(files) }))
}

// removeDevice removes the file of a device plugin's device (§4.1.1). A missing file is no error.
func (c *cleanCommand) removeDevice() error {
	file, err := c.devicePluginDir().Path(c.resource, c.device)
	if err != nil {
		return err
	}
	if _, err := c.host.Lstat(file); errdefs.IsNotFound(err) {
		return c.printRemoved(nil, nil, "no device-info file %s", file)
	}
	if !c.dryRun {
		if err := c.devicePluginDir().Remove(c.resource, c.device); err != nil {
			return err
		}
	}
	return c.printRemoved([]string{file}, nil, "")
}

// readKeptIDs returns the IDs to keep. Anything that is no ID is refused, because it would keep no file.
func (c *cleanCommand) readKeptIDs(cmd *cobra.Command) ([]string, error) {
	ids := c.keep
	if len(ids) == 1 && ids[0] == "-" {
		data, err := hostfs.ReadAtMost(c.env.Stdin, manifest.MaxSize)
		if err != nil {
			return nil, fmt.Errorf("read the IDs to keep: %w", err)
		}
		ids = splitIDs(string(data))
	}
	if fault := checkIDs(ids); fault != "" {
		return nil, usagef(cmd, "--keep-sandboxes: %s", fault)
	}
	return ids, nil
}

// splitIDs splits a list at commas, white space and line ends.
func splitIDs(text string) []string { return strings.Fields(strings.ReplaceAll(text, ",", " ")) }

// checkIDs returns why a list is no list of living sandboxes; "" for a valid one.
func checkIDs(ids []string) string {
	if len(ids) == 0 {
		return "the list is empty, and would remove the files of every sandbox"
	}
	for _, id := range ids {
		if !orphans.IsRuntimeID(id) {
			return fmt.Sprintf("invalid value %s: must be 12 to 64 lower case hexadecimal digits, as `crictl pods -q` prints "+
				"them", diag.Quote(id))
		}
	}
	return ""
}

// removeOrphans removes the files of sandboxes that are not to be kept.
func (c *cleanCommand) removeOrphans(cmd *cobra.Command) error {
	keep, err := c.readKeptIDs(cmd)
	if err != nil {
		return err
	}
	// Containers of Podman are not among the runtime's sandboxes.
	recorded, err := record.Living(c.host, record.DefaultDir)
	if err != nil {
		return fmt.Errorf("find the containers of Podman: %w", err)
	}
	keep = append(slices.Clone(keep), recorded...)
	dir := c.cniDir()
	names, err := orphans.OldFiles(c.host, dir.Dir, time.Now().Add(-c.age),
		func(name string) bool { return orphans.IsDeviceInfo(name, keep) })
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("list device-info directory %q: %w", dir.Dir, err)
	}
	var removed []string
	var errs []error
	for _, name := range names {
		if !c.dryRun {
			if err := dir.Remove(name); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		removed = append(removed, path.Join(dir.Dir, name))
	}
	return c.printRemoved(removed, errors.Join(errs...), "no device-info files of removed sandboxes in %s", dir.Dir)
}
