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

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const infoCleanLong = `clean removes device-info files, in one of three ways, and prints the path of
each file it removed. --dry-run prints the same and removes nothing.

  --sandbox-id ID            those of a sandbox that is gone, as at CNI DEL (§4.2.1)
  --resource R --device ID   that of a device, as its plugin does when it stops (§4.1.1)
  --orphans                  those of network attachments of sandboxes that are gone

For --orphans, --keep-sandboxes says which sandboxes live: a list with commas, or
- to read them from standard input. A file is removed only when the ID of its
sandbox can be read in its name (64 hexadecimal digits, as containerd and CRI-O
have it), no ID to keep begins like it, and it is older than --older-than, so that
a sandbox made after the list was is safe. An empty list is refused, because it is
what a failed command gives.`

// defaultAge is longer than anybody takes from listing the sandboxes to here.
const defaultAge = 10 * time.Minute

func infoCleanCommand(env Env) *cobra.Command {
	var (
		n node
		c cleaner
	)
	cmd := &cobra.Command{
		Use:   "clean {--sandbox-id ID | --resource NAME --device ID | --orphans --keep-sandboxes ID,...}",
		Short: "Remove device-info files of sandboxes and devices that are gone",
		Long:  infoCleanLong,
		Example: "  jackfield deviceinfo clean --sandbox-id ID\n" +
			"  crictl pods -q | jackfield deviceinfo clean --orphans --keep-sandboxes - --dry-run",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd); err != nil {
				return err
			}
			dirs, err := n.infoDirs(cmd)
			if err != nil {
				return err
			}
			c.env, c.dirs = env, dirs
			return c.run(cmd)
		},
	}
	cmd.Flags().StringVar(&c.sandbox, "sandbox-id", "", "`ID` of a sandbox that is gone")
	c.device.flags(cmd)
	cmd.Flags().BoolVar(&c.orphans, "orphans", false, "the files of all sandboxes that are not to be kept")
	cmd.Flags().StringSliceVar(&c.keep, "keep-sandboxes", nil, "`IDs` of the sandboxes that live, - for standard input")
	cmd.Flags().DurationVar(&c.age, "older-than", defaultAge, "with --orphans, the least `age` of a file to remove")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false, "print what would be removed, and remove nothing")
	n.flags(cmd)
	return cmd
}

type cleaner struct {
	env     Env
	dirs    infoDirs
	sandbox string
	device  device
	orphans bool
	keep    []string
	age     time.Duration
	dryRun  bool
}

// check wants exactly one of the three ways, with all it needs.
func (c *cleaner) check(cmd *cobra.Command) error {
	byDevice := c.device.resource != "" || c.device.id != ""
	ways := 0
	for _, way := range []bool{c.sandbox != "", byDevice, c.orphans} {
		if way {
			ways++
		}
	}
	switch {
	case ways != 1:
		return usagef(cmd, "want one of --sandbox-id, --resource with --device, and --orphans")
	case byDevice:
		return c.device.check(cmd)
	case !c.orphans && (c.keep != nil || cmd.Flags().Changed("older-than")):
		return usagef(cmd, "--keep-sandboxes and --older-than go with --orphans only")
	case c.orphans && c.keep == nil:
		return usagef(cmd, "--orphans wants --keep-sandboxes: the IDs of the sandboxes that live")
	case c.age < 0:
		return usagef(cmd, "--older-than: found %s, want a duration that is not negative", c.age)
	}
	return nil
}

func (c *cleaner) run(cmd *cobra.Command) error {
	switch {
	case c.orphans:
		keep, err := c.kept(cmd)
		if err != nil {
			return err
		}
		return c.removeOrphans(keep)
	case c.sandbox != "":
		return c.removeSandbox()
	}
	return c.removeDevice()
}

func (c *cleaner) removeSandbox() error {
	var files []string
	var err error
	if c.dryRun {
		var entries []deviceinfo.Entry
		entries, err = deviceinfo.ReadSandbox(c.dirs.cni.Root, c.dirs.cni.Dir, c.sandbox)
		for _, e := range entries {
			files = append(files, e.File)
		}
		slices.Sort(files)
	} else {
		files, err = c.dirs.cni.RemoveSandbox(c.sandbox)
	}
	for _, f := range files {
		fmt.Fprintln(c.env.Stdout, plain(f))
	}
	if err == nil && len(files) == 0 {
		c.env.say("no device-info files of sandbox %s in %s", c.sandbox, c.dirs.cni.Dir)
	}
	return err
}

func (c *cleaner) removeDevice() error {
	file, err := c.dirs.dp.Path(c.device.resource, c.device.id)
	if err != nil {
		return err
	}
	if _, err := c.dirs.dp.Root.Lstat(file); errdefs.IsNotFound(err) {
		c.env.say("no device-info file %s", file)
		return nil
	}
	if !c.dryRun {
		if err := c.dirs.dp.Remove(c.device.resource, c.device.id); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintln(c.env.Stdout, plain(file))
	return err
}

// keptID is what an ID to keep looks like, also one that was cut for display.
var keptID = lazy(`^[0-9a-f]{12,64}$`)

// maxKept bounds what is read from standard input, in bytes: 10,000 IDs and
// more.
const maxKept = 1 << 20

// kept are the IDs to keep. Whatever is no ID is refused: it would keep nothing.
func (c *cleaner) kept(cmd *cobra.Command) ([]string, error) {
	ids := c.keep
	if len(ids) == 1 && ids[0] == "-" {
		data, err := hostfs.ReadAtMost(c.env.Stdin, maxKept)
		if err != nil {
			return nil, fmt.Errorf("read the IDs to keep: %w", err)
		}
		ids = splitIDs(string(data))
	}
	if fault := faultOfIDs(ids); fault != "" {
		return nil, usagef(cmd, "--keep-sandboxes: %s", fault)
	}
	return ids, nil
}

// splitIDs takes a list with commas, white space or lines between apart.
func splitIDs(text string) []string { return strings.Fields(strings.ReplaceAll(text, ",", " ")) }

// faultOfIDs says why a list does not tell which sandboxes live; "" where it does.
func faultOfIDs(ids []string) string {
	if len(ids) == 0 {
		return "the list is empty, and would remove the files of every sandbox"
	}
	for _, id := range ids {
		if !keptID().MatchString(id) {
			return fmt.Sprintf("found %s, want 12 to 64 lower case hexadecimal digits, as `crictl pods -q` prints them", quoted(id))
		}
	}
	return ""
}

// removeOrphans removes what no sandbox to keep owns.
func (c *cleaner) removeOrphans(keep []string) error {
	names, err := c.dirs.cni.Root.ReadDir(c.dirs.cni.Dir, maxNames)
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("list device-info directory %q: %w", c.dirs.cni.Dir, err)
	}
	var errs []error
	for _, name := range names {
		if !orphan(name, keep) {
			continue
		}
		file := path.Join(c.dirs.cni.Dir, name)
		st, err := c.dirs.cni.Root.Lstat(file)
		if errdefs.IsNotFound(err) {
			continue
		}
		if err == nil && time.Since(time.Unix(st.Mtim.Unix())) < c.age {
			continue
		}
		if err == nil && !c.dryRun {
			err = c.dirs.cni.Remove(name)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintln(c.env.Stdout, plain(file))
	}
	return errors.Join(errs...)
}

// orphan tells whether a file's name has the ID of a sandbox, and none to keep
// anywhere in it.
func orphan(name string, keep []string) bool {
	_, id, _ := splitCNIName(name)
	return id != "" && !slices.ContainsFunc(keep, func(k string) bool { return strings.Contains(name, "-"+k) })
}
