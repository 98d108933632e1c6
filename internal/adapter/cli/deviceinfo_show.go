// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/jsontree"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

func infoShowCommand(env Env) *cobra.Command {
	var (
		n   hostFlags
		out output
	)
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show a device-info file",
		Long: "show prints the keys and values of a device-info file (- for standard input). With\n" +
			"-o json it prints the map itself. The diagnostics of an invalid file go to standard\n" +
			"error.",
		Example: "  cd /var/run/k8s.cni.cncf.io/devinfo/dp\n" +
			"  jackfield deviceinfo show intel.com-sriov-0000:03:00.3-device.json",
		Args: exactlyOneArg("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			info, err := n.readInfo(cmd, env, args[0])
			if err != nil {
				return err
			}
			for _, w := range diag.All("", info.Warnings).WithFile(args[0]) {
				env.message("%s", w)
			}
			data, err := deviceinfo.Marshal(info)
			if err != nil {
				return err
			}
			if out.format == formatJSON {
				_, err = env.Stdout.Write(data)
				return err
			}
			return out.writeResult(env, json.RawMessage(data), func() string { return infoText(info, data) })
		},
	}
	n.addRootFlag(cmd)
	out.addFlag(cmd)
	return cmd
}

// readInfo reads the device-info in a file, or on standard input for -. It prints the diagnostics
// of invalid device-info and returns errAnswerNo.
func (n *hostFlags) readInfo(cmd *cobra.Command, env Env, arg string) (*deviceinfo.Info, error) {
	host, err := n.openHost(cmd)
	if err != nil {
		return nil, err
	}
	var data []byte
	if arg == "-" {
		arg = "<stdin>"
		data, err = hostfs.ReadAtMost(env.Stdin, deviceinfo.MaxSize)
	} else {
		var p string
		if p, err = n.hostPath(cmd, arg); err != nil {
			return nil, err
		}
		data, err = host.ReadFile(p, deviceinfo.MaxSize)
	}
	if err != nil {
		return nil, fmt.Errorf("read device-info %q: %w", arg, err)
	}
	info, err := deviceinfo.Parse(data, arg)
	return info, printDiagnostics(env, arg, err)
}

// infoText prints each value of the map on a line, with its dotted key, in the map's order.
func infoText(info *deviceinfo.Info, data []byte) string {
	var t table
	if root, fault := jsontree.Parse(string(data)); fault == nil {
		addRows(&t, "", root, data, func(key string) string { return socketMaker(info, key) })
	}
	return t.formatText("")
}

// addRows adds a row for each value of a map that is no map itself.
func addRows(t *table, prefix string, object *jsontree.Node, data []byte, note func(key string) string) {
	for _, value := range object.Children {
		key, text := prefix+value.Key, value.Text
		switch value.Kind {
		case jsontree.Object:
			addRows(t, key+".", value, data, note)
			continue
		case jsontree.Array:
			var b bytes.Buffer
			_ = json.Compact(&b, data[value.Start:value.End]) // it was parsed
			text = b.String()
		}
		if n := note(key); n != "" {
			text += "  (" + n + ")"
		}
		t.addRow(key, text)
	}
}

// socketMaker returns the side that creates the socket, by the specification.
func socketMaker(info *deviceinfo.Info, key string) string {
	var host bool
	switch {
	case key == "vhost-user.mode" && info.VhostUser != nil:
		host = info.VhostUser.HostCreates()
	case key == "memif.role" && info.Memif != nil:
		host = info.Memif.HostCreates()
	default:
		return ""
	}
	if host {
		return "the host creates the socket"
	}
	return "the application creates the socket"
}
