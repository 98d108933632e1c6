// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/runtimeconfig"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

const enableNRILong = `enable-nri turns NRI on in the container runtime's configuration, and lets plugins
connect. containerd 1.7 and CRI-O before 1.30 have NRI off by default. The command
prints the change as a diff. Comments and order of the file stay. A configuration
that has NRI on already is not changed.

containerd: the file itself is edited (versions 2 to 4). Imported files are read as
containerd reads them. If one of them keeps NRI off, nothing is changed, and the
error names the file and line to change.

CRI-O: the command writes a drop-in, ` + runtimeconfig.CRIODropIn + `.
If a drop-in that CRI-O reads later keeps NRI off, nothing is written, and the
error names that file and line.

The runtime reads the change at its next start. --restart restarts it with
systemctl; running containers keep running.`

// enableNRI is one run of the command.
type enableNRI struct {
	hostFlags
	runtime, file   string
	restart, dryRun bool
}

func enableNRICommand(env Env) *cobra.Command {
	var e enableNRI
	cmd := &cobra.Command{
		Use:   "enable-nri [--runtime containerd|cri-o]",
		Short: "Turn NRI on in the container runtime's configuration",
		Long:  enableNRILong,
		Example: "  jackfield enable-nri --dry-run\n" +
			"  jackfield enable-nri --runtime containerd --restart",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.enableInRuntime(cmd, env) },
	}
	f := cmd.Flags()
	f.StringVar(&e.runtime, "runtime", "", "`runtime` to configure: containerd or cri-o (default: the one that has a configuration or a socket here)")
	f.StringVar(&e.file, "config", "", "`file` to change, a host path (default "+runtimeconfig.ContainerdFile+", or "+runtimeconfig.CRIODropIn+")")
	f.BoolVar(&e.restart, "restart", false, "restart the runtime's systemd unit when the file was changed")
	f.BoolVar(&e.dryRun, "dry-run", false, "print the change, and change nothing")
	completeFlag(cmd, "runtime", fixedValues("containerd", "cri-o"))
	e.addRootFlag(cmd)
	return cmd
}

// nriCommand is "nri enable", the former name of enable-nri. It is hidden: its manual page would
// have the name of the daemon's.
func nriCommand(env Env) *cobra.Command {
	cmd := enableNRICommand(env)
	cmd.Use = strings.Replace(cmd.Use, "enable-nri", "enable", 1)
	return commandGroup(&cobra.Command{Use: "nri", Short: "Turn NRI on in the container runtime", Hidden: true}, cmd)
}

func (e *enableNRI) enableInRuntime(cmd *cobra.Command, env Env) error {
	host, err := e.openHost(cmd)
	if err != nil {
		return err
	}
	if e.restart && !host.IsLive() {
		return usagef(cmd, "--restart is for this host, and not for one below --root")
	}
	if e.file != "" && hostfs.CheckPath(e.file) != nil {
		return usagef(cmd, "--config: found %q, want an absolute host path", e.file)
	}
	if e.runtime == "" {
		if e.runtime, err = findRuntime(host); err != nil {
			return err
		}
	}
	var (
		name, unit string
		change     *runtimeconfig.Change
	)
	switch e.runtime {
	case "containerd":
		if version := containerdVersion(cmd.Context(), host); runtimeconfig.LacksNRI(version) {
			return &hintedError{err: fmt.Errorf("containerd %s has no NRI, and nothing was changed", version), hint: runtimeconfig.UpgradeContainerd}
		}
		name, unit = "containerd", "containerd"
		e.file = cmp.Or(e.file, runtimeconfig.ContainerdFile)
		change, err = runtimeconfig.EnableContainerdNRI(host, e.file)
	case "cri-o", "crio":
		name, unit = "CRI-O", "crio"
		e.file = cmp.Or(e.file, runtimeconfig.CRIODropIn)
		change, err = runtimeconfig.EnableCRIONRI(host, e.file)
	default:
		return usagef(cmd, "--runtime: found %q, want containerd or cri-o", e.runtime)
	}
	if change != nil {
		for _, m := range change.Missing {
			env.message("warning: there is no %s: what it sets for NRI is not known", m)
		}
	}
	if err == nil && change.Needed() && !e.dryRun {
		err = runtimeconfig.WriteFile(host, e.file, change.After)
	}
	if err != nil {
		return fmt.Errorf("turn NRI on in %s: %w", e.file, err)
	}
	if !change.Needed() {
		_, err := fmt.Fprintf(env.Stdout, "%s: NRI is on and lets plugins connect, nothing changed\n", change.File)
		return err
	}
	verb := "changed"
	if e.dryRun {
		verb = "would be changed"
	}
	if _, err := fmt.Fprintf(env.Stdout, "%s: %s:\n%s\n", e.file, verb, plainLines(change.Diff())); err != nil {
		return err
	}
	switch {
	case e.dryRun:
		_, err = fmt.Fprintf(env.Stdout, "Nothing was changed (--dry-run).\n")
	case !e.restart:
		_, err = fmt.Fprintf(env.Stdout, "%s reads it at its next start: systemctl restart %s\n", name, unit)
	default:
		err = restartUnit(cmd.Context(), env, unit)
	}
	return err
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
	return "", &hintedError{err: errors.New(what), hint: "name the runtime: --runtime containerd, or --runtime cri-o", usage: true}
}

// restartUnit restarts a systemd unit.
func restartUnit(ctx context.Context, env Env, unit string) error {
	out, err := exec.CommandContext(ctx, "systemctl", "restart", unit).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl restart %s: %w: %s", unit, err, strings.TrimSpace(string(out)))
	}
	_, err = fmt.Fprintf(env.Stdout, "restarted %s\n", unit)
	return err
}
