// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

func infoShowCommand(env Env) *cobra.Command {
	var (
		n   node
		out output
	)
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show a device-info file",
		Long: "show prints the keys and values of a device-info file (- for standard input). With -o json it is the map\n" +
			"itself, in the form in which save writes it. Of a file that is not valid every finding goes to standard error.",
		Example: "  jackfield deviceinfo show /var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-sriov-0000:03:00.3-device.json",
		Args:    oneArg("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			info, err := n.readInfo(cmd, env, args[0])
			if err != nil {
				return err
			}
			for _, w := range fromDeviceInfo(args[0], severityWarning, info.Warnings) {
				env.say("%s", w)
			}
			data, err := deviceinfo.Marshal(info)
			if err != nil {
				return err
			}
			if !out.json() {
				data = infoText(info, data)
			}
			_, err = env.Stdout.Write(data)
			return err
		},
	}
	n.rootFlag(cmd)
	out.flag(cmd)
	return cmd
}

// readInfo reads the device-info of an argument, a file or - for standard
// input. Of one that is not valid it says everything, and gives errAnswerNo.
func (n *node) readInfo(cmd *cobra.Command, env Env, arg string) (*deviceinfo.Info, error) {
	host, err := n.host(cmd)
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
	if err != nil {
		for _, f := range fromDeviceInfoError(arg, err) {
			env.say("%s", f)
		}
		return nil, errAnswerNo
	}
	return info, nil
}

// infoText is each value of the map on a line, with its dotted key, in the
// map's order.
func infoText(info *deviceinfo.Info, data []byte) []byte {
	t := &table{}
	flatten(t, "", data, func(key string) string { return socketMaker(info, key) })
	var b strings.Builder
	t.write(&b, "")
	return []byte(b.String())
}

// flatten adds a row for each value of a map that is no map itself.
func flatten(t *table, prefix string, data json.RawMessage, note func(key string) string) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if _, err := dec.Token(); err != nil {
		return
	}
	for dec.More() {
		tok, err := dec.Token()
		if err != nil {
			return
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return
		}
		key := prefix + fmt.Sprint(tok)
		if value[0] == '{' {
			flatten(t, key+".", value, note)
			continue
		}
		text := string(value)
		var s string
		if json.Unmarshal(value, &s) == nil {
			text = s
		} else {
			var b bytes.Buffer
			if json.Compact(&b, value) == nil {
				text = b.String()
			}
		}
		if n := note(key); n != "" {
			text += "  (" + n + ")"
		}
		t.add(key, text)
	}
}

// socketMaker says who makes the socket, by the specification.
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
		return "the host makes the socket"
	}
	return "the application makes the socket"
}
