// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/source/devicemetadata"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const deviceInfoLong = `deviceinfo lists, shows and removes device-info files (Device Information
Specification 1.1.0) in the directories deviceInfo.dpDir and deviceInfo.cniDir of
the configuration.`

func deviceInfoCommand(env Env) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "deviceinfo",
		Short: "List, show and remove device-info files",
		Long:  deviceInfoLong,
	}, infoListCommand(env), infoShowCommand(env), infoCleanCommand(env))
}

// devicePluginDir returns the directory in which device plugins write device-info files.
func (n localNode) devicePluginDir() deviceinfo.DevicePluginDir {
	return deviceinfo.DevicePluginDir{Root: n.host.Dir(), Dir: n.cfg.DeviceInfo.DPDir}
}

// cniDir returns the directory of the device-info files of network attachments.
func (n localNode) cniDir() deviceinfo.CNIDir {
	return deviceinfo.CNIDir{Root: n.host.Dir(), Dir: n.cfg.DeviceInfo.CNIDir}
}

// listPluginFiles lists the files of device plugins.
func (n localNode) listPluginFiles() ([]infoFile, error) {
	entries, err := n.devicePluginDir().List("")
	return infoFiles(roleDP, entries), err
}

// listFiles lists the files of one sandbox, or for "" those of all network attachments, device plugins and
// resource claims.
func (n localNode) listFiles(env Env, sandboxID string) ([]infoFile, error) {
	if sandboxID != "" {
		entries, err := deviceinfo.CNIDir{Root: n.host.Dir(), Dir: n.cfg.DeviceInfo.CNIDir}.ReadSandbox(sandboxID)
		return infoFiles(roleCNI, entries), err
	}
	networks, err := n.cniDir().List()
	if err != nil {
		return nil, err
	}
	plugins, err := n.listPluginFiles()
	if err != nil {
		return nil, err
	}
	claimed, err := devicemetadata.Dir{Host: n.host, Path: n.cfg.Kubelet.PluginsDir}.List()
	if err != nil {
		env.message("warning: not all device metadata is listed: %v", err)
	}
	files := append(infoFiles(roleCNI, networks), plugins...)
	for i := range claimed {
		files = append(files, newClaimFiles(&claimed[i])...)
	}
	return files, nil
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
			local, err := n.openInForce(cmd, env)
			if err != nil {
				return err
			}
			files, err := local.listFiles(env, sandbox)
			if err != nil {
				return err
			}
			if len(files) == 0 && out.isText() {
				env.message("no device-info files of %s", local.describeSearch(sandbox))
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

func (n localNode) describeSearch(sandboxID string) string {
	if sandboxID != "" {
		return fmt.Sprintf("sandbox %s in %s", sandboxID, n.cfg.DeviceInfo.CNIDir)
	}
	return fmt.Sprintf("network attachments in %s, none of device plugins in %s, and no device metadata in %s",
		n.cfg.DeviceInfo.CNIDir, n.cfg.DeviceInfo.DPDir, n.cfg.Kubelet.PluginsDir)
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
