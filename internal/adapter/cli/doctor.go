// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/report/doctor"
	"github.com/jackfield/jackfield/pkg/cdi"
)

const doctorLong = `doctor checks what containers of this node need to get devices and sockets: the
runtime's NRI, the plugin, the configuration, the directories and files, and what
else injects devices. Each finding comes with a remedy. "unknown" marks what doctor
could not find out, mostly because it does not run as root.

Without --config, doctor asks jackfield-nri for its configuration, and checks that
one; if no daemon responds, it checks /etc/jackfield/config.yaml. With --config it
reports if the daemon runs with another configuration.

--fix does what is safe: it removes device-info files, and results in Multus' cache,
of sandboxes that have been gone for more than ten minutes, and the write access of
other users than the owner to the state directory and to socket roots, except for
directories that the whole system shares, such as /tmp. It restarts nothing, and
changes no configuration. It keeps the files of sandboxes in Multus' cache, and
results that belong to them, because Multus needs both for a later DEL.

In the pod of the DaemonSet, doctor sees only the mounts of the pod: run it on the node
to check the runtime's configuration and the hook files of CRI-O. A file or directory
that is unresponsive ends its check after some seconds, and the other checks run.

Exit status: 0 when there is no error (there may be warnings); 1 when there is one;
3 when there is none, and something is unknown.`

func doctorCommand(env Env) *cobra.Command {
	var (
		h    hostFlags
		out  output
		opts doctor.Options
	)
	cmd := &cobra.Command{
		Use:   "doctor [--fix]",
		Short: "Find what keeps containers on this node from getting devices and sockets",
		Long:  doctorLong,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if opts.Host, err = h.openHost(cmd); err != nil {
				return err
			}
			opts.ConfigFile, opts.SpecDirs = h.configFile, env.Getenv(cdi.DirsEnv)
			opts.IsPod, opts.ContainerdVersion = isPod(env, opts.Host), runtimeVersion(cmd.Context(), opts.Host, "containerd")
			findings := doctor.Examine(cmd.Context(), opts)
			err = out.writeResult(env, findings, func() string {
				width, _ := terminalSize(env.Stdout)
				return doctorText(findings, width)
			})
			has := func(severity doctor.Severity) bool {
				return slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Severity == severity && !f.Fixed })
			}
			return answerError(err, has(doctor.Error), has(doctor.Unknown))
		},
	}
	h.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&opts.Fix, "fix", false, "do what is safe about findings")
	f.StringVar(&opts.ContainerdFile, "containerd-config", runtimeconfig.ContainerdFile,
		"containerd's configuration `file`")
	f.StringVar(&opts.CRIOFile, "crio-config", runtimeconfig.CRIOFile,
		"CRI-O's configuration `file`, and its directory FILE.d")
	f.StringVar(&opts.NRISocket, "nri-socket", "", "NRI `socket` of the runtime (default what its configuration says)")
	out.addFlag(cmd)
	return cmd
}

// Columns of a finding's text.
const (
	foundColumn  = 24
	remedyColumn = foundColumn + len("-> ")
)

// doctorText prints findings for people. Lines are at most width columns wide, where they can be
// broken; 0 is any width.
func doctorText(findings []doctor.Finding, width int) string {
	var b strings.Builder
	counts := map[doctor.Severity]int{}
	for _, f := range findings {
		mark := string(f.Severity)
		switch {
		case f.Fixed:
			mark = "fixed"
		case f.Severity == doctor.Error:
			mark = "ERROR"
		}
		fmt.Fprintf(&b, "%s %-14s %s\n", colored(stateColor(mark), fmt.Sprintf("%-8s", mark)), f.Check,
			wrapText(plainLines(f.Found), width, foundColumn))
		if f.Remedy != "" && !f.Fixed {
			fmt.Fprintf(&b, "%s-> %s\n", strings.Repeat(" ", foundColumn), wrapText(plainLines(f.Remedy), width, remedyColumn))
		}
		if !f.Fixed {
			counts[f.Severity]++
		}
	}
	fmt.Fprintf(&b, "\n%s, %s", diag.Count(counts[doctor.Error], "error"), diag.Count(counts[doctor.Warning], "warning"))
	if n := counts[doctor.Unknown]; n > 0 {
		fmt.Fprintf(&b, ", %d unknown", n)
	}
	b.WriteByte('\n')
	return b.String()
}
