// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/devicemetadata"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const deviceInfoLong = `deviceinfo lists, shows and writes device-info files (Device Information
Specification 1.1.0), as a device plugin does (save, §4.1) and as an NPWG
implementation does (copy, clean, §4.2). The directories are those of the
configuration, deviceInfo.dpDir and deviceInfo.cniDir.`

func deviceInfoCommand(env Env) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "deviceinfo",
		Short: "List, show and write device-info files",
		Long:  deviceInfoLong,
	}, infoListCommand(env), infoShowCommand(env), infoSaveCommand(env), infoCopyCommand(env), infoCleanCommand(env))
}

// infoDirs are the directories of device-info files and of device metadata.
type infoDirs struct {
	dp     deviceinfo.DevicePluginDir
	cni    deviceinfo.CNIDir
	claims devicemetadata.Dir
}

func (n localNode) infoDirs() infoDirs {
	return infoDirs{
		dp:     deviceinfo.DevicePluginDir{Root: n.host, Dir: n.cfg.DeviceInfo.DPDir},
		cni:    deviceinfo.CNIDir{Root: n.host, Dir: n.cfg.DeviceInfo.CNIDir},
		claims: devicemetadata.Dir{Host: n.host, Path: n.cfg.Kubelet.PluginsDir},
	}
}

func (n *hostFlags) infoDirs(cmd *cobra.Command) (infoDirs, error) {
	local, err := n.openNode(cmd)
	if err != nil {
		return infoDirs{}, err
	}
	return local.infoDirs(), nil
}

// plugins lists the files of device plugins.
func (d infoDirs) plugins() ([]infoFile, error) {
	entries, err := d.dp.List("")
	return infoFiles(roleDP, entries), err
}

// networks lists the files of network attachments: those of one sandbox, or all for "".
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
		n       hostFlags
		out     output
		sandbox string
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the device-info files and the device metadata of this node",
		Long: "list shows each device-info file with its role (dp: of a device plugin, cni: of a\n" +
			"network attachment), its owner as far as the file's name shows it, its type, and\n" +
			"its first diagnostic. It also shows each device in the metadata of resource claims\n" +
			"(claim): claim, request, driver, pool, name, and its address or socket.",
		Example: "  jackfield deviceinfo list\n  jackfield deviceinfo list --sandbox-id ID -o json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
				claimed, err := dirs.claims.List()
				if err != nil {
					env.message("warning: not all device metadata is listed: %v", err)
				}
				files = append(files, plugins...)
				for i := range claimed {
					files = append(files, newClaimFiles(&claimed[i])...)
				}
			}
			if len(files) == 0 && out.isText() {
				env.message("no device-info files of %s", dirs.describeSearch(sandbox))
				return nil
			}
			return out.writeResult(env, files, func() string { return infoFilesText(files) })
		},
	}
	n.addFlags(cmd)
	cmd.Flags().StringVar(&sandbox, "sandbox-id", "", "only the files of the sandbox with this `ID`")
	out.addFlag(cmd)
	return cmd
}

func (d infoDirs) describeSearch(sandboxID string) string {
	if sandboxID != "" {
		return fmt.Sprintf("sandbox %s in %s", sandboxID, d.cni.Dir)
	}
	return fmt.Sprintf("network attachments in %s, none of device plugins in %s, and no device metadata in %s", d.cni.Dir, d.dp.Dir, d.claims.Path)
}

func infoFilesText(files []infoFile) string {
	var t table
	t.addRow("ROLE", "TYPE", "OF", "STATE", "FILE")
	for i := range files {
		f := &files[i]
		t.addRow(f.Role, f.Type, f.ownerText(), f.stateText(), f.detailText())
	}
	return t.formatText("")
}
