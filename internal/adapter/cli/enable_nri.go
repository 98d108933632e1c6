// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const enableNRILong = `enable-nri turns NRI on in the container runtime, and lets plugins connect. containerd
1.7 and CRI-O before 1.30 have NRI off by default. Where NRI is on, the command prints
that there is nothing to do.

The command writes a drop-in where the runtime reads one, and prints it: in a
directory that containerd's configuration imports, or, for CRI-O,
` + runtimeconfig.CRIODropIn + `. It changes no file that exists.

Where a drop-in is not possible, the command prints the lines to add or to change,
each with its file and line, and its exit status is 1. A drop-in is not possible
where containerd's configuration imports no directory, where a file that is read
later keeps NRI off, where disabled_plugins of containerd lists NRI, and where a file of
version 2 has NRI's table, whose other keys containerd 1.7 would ignore.

If no file mentions NRI, it is on from containerd 2.0 and CRI-O 1.30, and where the
runtime listens at the NRI socket. A missing imported file is reported and skipped; any
other file that cannot be read is an error.

The runtime reads the change at its next start.`

// enableNRI is one run of the command.
type enableNRI struct {
	hostFlags
	runtime, file string
	dryRun        bool
}

func enableNRICommand(env Env) *cobra.Command {
	var e enableNRI
	cmd := &cobra.Command{
		Use:   "enable-nri [--runtime containerd|cri-o]",
		Short: "Turn NRI on in the container runtime, or print the lines that do",
		Long:  enableNRILong,
		Example: "  jackfield enable-nri --dry-run\n" +
			"  jackfield enable-nri --runtime containerd",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd, env) },
	}
	f := cmd.Flags()
	f.StringVar(&e.runtime, "runtime", "", "`runtime` to configure: containerd or cri-o (default: the one that has a "+
		"configuration or a socket here)")
	f.StringVar(&e.file, "runtime-config", "", "containerd's configuration `file`, or CRI-O's drop-in, a host path "+
		"(default "+
		runtimeconfig.ContainerdFile+", or "+runtimeconfig.CRIODropIn+")")
	f.BoolVar(&e.dryRun, "dry-run", false, "print the drop-in, and do not write it")
	completeFlag(cmd, "runtime", fixedValues("containerd", "cri-o"))
	e.addRootFlag(cmd)
	return cmd
}

func (e *enableNRI) run(cmd *cobra.Command, env Env) error {
	host, err := e.openHost(cmd)
	if err != nil {
		return err
	}
	if e.file != "" && hostfs.CheckPath(e.file) != nil {
		return usagef(cmd, "--runtime-config: invalid value %q: must be an absolute host path", e.file)
	}
	if e.runtime == "" {
		if e.runtime, err = findRuntime(host); err != nil {
			return err
		}
	}
	var (
		unit string
		plan *runtimeconfig.NRIPlan
	)
	switch e.runtime {
	case "containerd":
		unit = "containerd"
		version := runtimeVersion(cmd.Context(), host, "containerd")
		if runtimeconfig.LacksNRI(version) {
			err := fmt.Errorf("containerd %s has no NRI", version)
			return &hintedError{err: err, hint: runtimeconfig.UpgradeContainerd}
		}
		file := cmp.Or(e.file, runtimeconfig.ContainerdFile)
		plan, err = runtimeconfig.PlanContainerdNRI(host, file, runtimeconfig.ContainerdHasNRIOn(version))
	case "cri-o", "crio":
		unit = "crio"
		onByDefault := runtimeconfig.CRIOHasNRIOn(runtimeVersion(cmd.Context(), host, "crio"))
		plan, err = runtimeconfig.PlanCRIONRI(host, cmp.Or(e.file, runtimeconfig.CRIODropIn), onByDefault)
	default:
		return usagef(cmd, "--runtime: invalid value %q: must be containerd or cri-o", e.runtime)
	}
	if err != nil {
		return fmt.Errorf("turn NRI on in %s: %w", e.runtime, err)
	}
	for _, m := range plan.Missing {
		env.message("warning: there is no %s: its settings for NRI are unknown", m)
	}
	return e.apply(env, host, unit, plan)
}

// apply writes the drop-in of a plan, or prints the changes by hand. unit is the runtime's systemd unit.
func (e *enableNRI) apply(env Env, host hostfs.Root, unit string, plan *runtimeconfig.NRIPlan) error {
	restart := "The runtime reads it at its next start: systemctl restart " + unit + "\n"
	switch d := plan.DropIn; {
	case len(plan.ByHand) > 0:
		const edit = "NRI is off, or lets no plugin connect. Edit the runtime's configuration:"
		_, err := fmt.Fprintf(env.Stdout, "%s\n\n%s\n\n%s", edit, plainLines(strings.Join(plan.ByHand, "\n")), restart)
		return cmp.Or(err, errAnswerNo)
	case d == nil:
		by := "by default"
		if plan.OnIn != "" {
			by = "by " + plain(plan.OnIn)
		}
		_, err := fmt.Fprintf(env.Stdout, "NRI is on and lets plugins connect, %s: nothing to do\n", by)
		return err
	case e.dryRun:
		const nothing = "Nothing was written (--dry-run).\n"
		_, err := fmt.Fprintf(env.Stdout, "%s: would be written:\n%s\n\n%s", plain(d.File), plainLines(d.Text), nothing)
		return err
	default:
		if err := host.Replace(d.File, []byte(d.Text), hostfs.Own(0o644)); err != nil {
			return fmt.Errorf("turn NRI on in %s: %w", e.runtime, err)
		}
		_, err := fmt.Fprintf(env.Stdout, "%s: written:\n%s\n\n%s", plain(d.File), plainLines(d.Text), restart)
		return err
	}
}

// findRuntime returns the one runtime that has a configuration or a socket on the host.
func findRuntime(host hostfs.Root) (string, error) {
	exists := func(paths ...string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { _, err := host.Stat(p); return err == nil })
	}
	containerd := exists(runtimeconfig.ContainerdFile, "/run/containerd/containerd.sock")
	crio := exists(runtimeconfig.CRIOFile, path.Dir(runtimeconfig.CRIODropIn), "/run/crio/crio.sock")
	switch {
	case containerd && !crio:
		return "containerd", nil
	case crio && !containerd:
		return "cri-o", nil
	}
	what := "neither containerd nor CRI-O has a configuration or a socket here"
	if crio {
		what = "both containerd and CRI-O are here"
	}
	return "", &hintedError{err: errors.New(what), hint: "name the runtime: --runtime containerd, or --runtime cri-o",
		usage: true}
}
