// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const deviceInfoLong = `deviceinfo lists, shows and writes device-info files (Device Information
Specification 1.1.0), in the roles of a device plugin (save, §4.1) and of an NPWG
implementation (copy, clean, §4.2). The directories are those of the
configuration, deviceInfo.dpDir and deviceInfo.cniDir.`

func deviceInfoCommand(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "deviceinfo",
		Short: "List, show and write device-info files",
		Long:  deviceInfoLong,
	}, infoListCommand(env), infoShowCommand(env), infoSaveCommand(env), infoCopyCommand(env), infoCleanCommand(env))
}

// infoDirs are the two directories of device-info files.
type infoDirs struct {
	dp  deviceinfo.DevicePluginDir
	cni deviceinfo.CNIDir
}

func dirsOf(host hostfs.Root, cfg *config.Config) infoDirs {
	return infoDirs{
		dp:  deviceinfo.DevicePluginDir{Root: host, Dir: cfg.DeviceInfo.DPDir},
		cni: deviceinfo.CNIDir{Root: host, Dir: cfg.DeviceInfo.CNIDir},
	}
}

func (n *node) infoDirs(cmd *cobra.Command) (infoDirs, error) {
	host, cfg, err := n.load(cmd)
	if err != nil {
		return infoDirs{}, err
	}
	return dirsOf(host, cfg), nil
}

// plugins lists the files of device plugins.
func (d infoDirs) plugins() ([]infoFile, error) {
	entries, err := d.dp.List("")
	return infoFiles(roleDP, entries), err
}

// networks lists the files of network attachments, of one sandbox when the ID is
// not "".
func (d infoDirs) networks(sandboxID string) ([]infoFile, error) {
	if sandboxID != "" {
		entries, err := deviceinfo.ReadSandbox(d.cni.Root, d.cni.Dir, sandboxID)
		return infoFiles(roleCNI, entries), err
	}
	entries, err := d.cni.List()
	return infoFiles(roleCNI, entries), err
}

func infoFiles(role string, entries []deviceinfo.Entry) []infoFile {
	out := make([]infoFile, len(entries))
	for i, e := range entries {
		out[i] = newInfoFile(role, e)
	}
	return out
}

func infoListCommand(env Env) *cobra.Command {
	var (
		n       node
		out     output
		sandbox string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the device-info files of this node",
		Long: "list shows each device-info file with its role (dp: of a device plugin, cni: of a network attachment), whose\n" +
			"it is, as far as its name tells, its type, and the first finding when there is one.",
		Example: "  jackfield deviceinfo list\n  jackfield deviceinfo list --sandbox-id ID -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			if cmd.Flags().Changed("sandbox-id") && sandbox == "" {
				return usagef(cmd, "--sandbox-id: the ID is empty")
			}
			dirs, err := n.infoDirs(cmd)
			if err != nil {
				return err
			}
			files, err := dirs.networks(sandbox)
			if err != nil {
				return err
			}
			if sandbox == "" {
				plugins, err := dirs.plugins()
				if err != nil {
					return err
				}
				files = append(files, plugins...)
			}
			if out.json() {
				return writeJSON(env.Stdout, files)
			}
			if len(files) == 0 {
				env.say("no device-info files of %s", dirs.text(sandbox))
				return nil
			}
			return printInfoFiles(env.Stdout, files)
		},
	}
	n.flags(cmd)
	cmd.Flags().StringVar(&sandbox, "sandbox-id", "", "only the files of the sandbox with this `ID`")
	out.flag(cmd)
	return cmd
}

func (d infoDirs) text(sandboxID string) string {
	if sandboxID != "" {
		return fmt.Sprintf("sandbox %s in %s", sandboxID, d.cni.Dir)
	}
	return fmt.Sprintf("network attachments in %s, and none of device plugins in %s", d.cni.Dir, d.dp.Dir)
}

func printInfoFiles(w io.Writer, files []infoFile) error {
	t := &table{}
	t.add("ROLE", "TYPE", "OF", "STATE", "FILE")
	for i := range files {
		files[i].row(t)
	}
	var b strings.Builder
	t.write(&b, "")
	_, err := io.WriteString(w, b.String())
	return err
}
