// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// device is a device as its device plugin names it.
type device struct{ resource, id string }

func (d *device) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&d.resource, "resource", "", "`name` of the extended resource, such as intel.com/sriov")
	cmd.Flags().StringVar(&d.id, "device", "", "`ID` of the device, as the device plugin names it")
}

func (d *device) checkFlags(cmd *cobra.Command) error {
	switch {
	case d.resource == "":
		return usagef(cmd, "--resource is missing")
	case d.id == "":
		return usagef(cmd, "--device is missing")
	}
	return nil
}

func infoSaveCommand(env Env) *cobra.Command {
	var (
		n hostFlags
		d device
	)
	cmd := &cobra.Command{
		Use:   "save --resource NAME --device ID FILE",
		Short: "Write the device-info file of a device, as a device plugin does",
		Long: "save checks a device-info map (- for standard input) and writes it where the\n" +
			"device plugin of the device would (Device Information Specification, §4.1):\n" +
			"in one step, with mode 0644. It creates a missing directory, and prints the path\n" +
			"of the file.",
		Example: "  jackfield deviceinfo save --resource intel.com/sriov \\\n" +
			"      --device 0000:03:00.3 info.json",
		Args: exactlyOneArg("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := d.checkFlags(cmd); err != nil {
				return err
			}
			local, err := n.openNode(cmd)
			if err != nil {
				return err
			}
			// FILE is a path of the caller, also where --root names another host.
			info, err := (&hostFlags{root: "/"}).readInfo(cmd, env, args[0])
			if err != nil {
				return err
			}
			file, err := local.devicePluginDir().Save(d.resource, d.id, info)
			if err != nil {
				return printDiagnostics(env, args[0], err)
			}
			return printPaths(env, file)
		},
	}
	d.addFlags(cmd)
	n.addFlags(cmd)
	return cmd
}

func infoCopyCommand(env Env) *cobra.Command {
	var (
		n  hostFlags
		d  device
		to cniTarget
	)
	cmd := &cobra.Command{
		Use:   "copy --resource NAME --device ID {--to FILE | --namespace NS --nad NAD --sandbox-id ID --interface IF}",
		Short: "Copy a device's file to a network attachment, as an NPWG implementation does",
		Long: "copy copies the device-info file of an allocated device to that of a network\n" +
			"attachment (Device Information Specification, §4.2.1). The target is a name or path in\n" +
			"the directory of such files, or the name that Multus gives: NS-NAD-ID_IF. The command\n" +
			"prints the path of the file.",
		Example: "  jackfield deviceinfo copy --resource intel.com/sriov \\\n" +
			"      --device 0000:03:00.3 --namespace telco --nad east \\\n" +
			"      --sandbox-id ID --interface net1",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := d.checkFlags(cmd); err != nil {
				return err
			}
			local, err := n.openNode(cmd)
			if err != nil {
				return err
			}
			name, err := to.fileName(cmd, local.cniDir())
			if err != nil {
				return err
			}
			_, file, err := local.cniDir().CopyFrom(local.devicePluginDir(), d.resource, d.id, name)
			if err != nil {
				source, _ := local.devicePluginDir().Path(d.resource, d.id) // an error of it is in err as well
				return printDiagnostics(env, source, err)
			}
			return printPaths(env, file)
		},
	}
	d.addFlags(cmd)
	cmd.Flags().StringVar(&to.file, "to", "", "target `file`: a name or path in the directory of network attachments")
	cmd.Flags().StringVar(&to.namespace, "namespace", "", "`namespace` of the NetworkAttachmentDefinition")
	cmd.Flags().StringVar(&to.nad, "nad", "", "`name` of the NetworkAttachmentDefinition")
	cmd.Flags().StringVar(&to.sandbox, "sandbox-id", "", "`ID` of the pod's sandbox")
	cmd.Flags().StringVar(&to.ifName, "interface", "", "`name` of the interface in the pod")
	n.addFlags(cmd)
	return cmd
}

// cniTarget names the file of a network attachment, either itself or by its parts.
type cniTarget struct {
	file                            string
	namespace, nad, sandbox, ifName string
}

func (t *cniTarget) fileName(cmd *cobra.Command, dir deviceinfo.CNIDir) (string, error) {
	parts := []struct{ flag, value string }{
		{"--namespace", t.namespace}, {"--nad", t.nad}, {"--sandbox-id", t.sandbox}, {"--interface", t.ifName},
	}
	var have, missing []string
	for _, p := range parts {
		if p.value == "" {
			missing = append(missing, p.flag)
		} else {
			have = append(have, p.flag)
		}
	}
	switch {
	case t.file != "" && len(have) > 0:
		return "", usagef(cmd, "--to names the file already; leave out %s", strings.Join(have, ", "))
	case t.file == "" && len(missing) > 0:
		return "", usagef(cmd, "no target: want --to, or %s as well", strings.Join(missing, ", "))
	case t.file == "":
		return deviceinfo.CNIFileName(t.namespace, t.nad, t.sandbox, t.ifName)
	case !strings.Contains(t.file, "/"):
		return t.file, deviceinfo.CheckFileName(t.file)
	}
	f, err := dir.File(t.file)
	if err != nil {
		return "", err
	}
	return path.Base(f.Path()), nil
}
