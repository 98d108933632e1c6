// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	containerdConfig = "/etc/containerd/config.toml"
	crioConfig       = "/etc/crio/crio.conf"
	// crioDropIn comes after any other by its name.
	crioDropIn     = "/etc/crio/crio.conf.d/99-jackfield-nri.conf"
	maxRuntimeFile = 4 << 20
)

const enableNRILong = `enable-nri turns NRI on in the container runtime's configuration, and lets plugins
connect. containerd 1.7 and CRI-O before 1.30 have NRI off by default. The command
prints the change as a diff. Nothing else in the file changes: comments and order
stay. A configuration that has NRI on already is not changed.

containerd: the file itself is edited (versions 2 to 4). Imported files are read as
containerd reads them. Where one of them keeps NRI off, nothing is changed, and the
error names the file and line to change.

CRI-O: a drop-in is written, ` + crioDropIn + `.
Where a drop-in that CRI-O reads later keeps NRI off, nothing is written, and the
error names that file and line.

The runtime reads the change at its next start. The command restarts it only with
--restart, by systemctl. Running containers keep running.`

// enabling is the command's flags.
type enabling struct {
	root, runtime, file string
	restart, dry        bool
}

func enableNRICommand(env Env) *cobra.Command {
	var e enabling
	cmd := &cobra.Command{
		Use:   "enable-nri [--runtime containerd|cri-o]",
		Short: "Turn NRI on in the container runtime's configuration",
		Long:  enableNRILong,
		Example: "  jackfield enable-nri --dry-run\n" +
			"  jackfield enable-nri --runtime containerd --restart",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd, env) },
	}
	f := cmd.Flags()
	f.StringVar(&e.runtime, "runtime", "", "containerd or cri-o (default: the one that has a configuration or a socket here)")
	f.StringVar(&e.file, "config", "", "`file` to change, a host path (default "+containerdConfig+", or "+crioDropIn+")")
	f.BoolVar(&e.restart, "restart", false, "restart the runtime's systemd unit when the file was changed")
	f.BoolVar(&e.dry, "dry-run", false, "print the change, and change nothing")
	completeFlag(cmd, "runtime", fixedValues("containerd", "cri-o"))
	f.StringVar(&e.root, "root", "/", "take all host paths below this `directory`")
	return cmd
}

// nriCommand is the former name of enable-nri, "nri enable". It is hidden: its manual page would have the name of the daemon's.
func nriCommand(env Env) *cobra.Command {
	cmd := enableNRICommand(env)
	cmd.Use = strings.Replace(cmd.Use, "enable-nri", "enable", 1)
	return group(&cobra.Command{Use: "nri", Short: "Turn NRI on in the container runtime", Hidden: true}, cmd)
}

func (e *enabling) run(cmd *cobra.Command, env Env) error {
	host, err := hostfs.New(e.root)
	if err != nil {
		return usagef(cmd, "--root: %w", err)
	}
	if e.restart && host.Dir() != "/" {
		return usagef(cmd, "--restart is for this host, and not for one below --root")
	}
	if e.file != "" && hostfs.CheckPath(e.file) != nil {
		return usagef(cmd, "--config: found %q, want an absolute host path", e.file)
	}
	if e.runtime == "" {
		if e.runtime, err = runtimeHere(host); err != nil {
			return err
		}
	}
	var (
		name, unit string
		diff       string
	)
	switch e.runtime {
	case "containerd":
		name, unit = "containerd", "containerd"
		diff, err = e.containerd(env, host)
	case "cri-o", "crio":
		name, unit = "CRI-O", "crio"
		diff, err = e.crio(host)
	default:
		return usagef(cmd, "--runtime: found %q, want containerd or cri-o", e.runtime)
	}
	if err != nil {
		return fmt.Errorf("turn NRI on in %s: %w", e.file, err)
	}
	if diff == "" {
		_, err := fmt.Fprintf(env.Stdout, "%s: NRI is on and lets plugins connect, nothing changed\n", e.file)
		return err
	}
	verb := "changed"
	if e.dry {
		verb = "would be changed"
	}
	if _, err := fmt.Fprintf(env.Stdout, "%s: %s:\n%s\n", e.file, verb, plainLines(diff)); err != nil {
		return err
	}
	switch {
	case e.dry:
		_, err = fmt.Fprintf(env.Stdout, "Nothing was changed (--dry-run).\n")
	case !e.restart:
		_, err = fmt.Fprintf(env.Stdout, "%s reads it at its next start: systemctl restart %s\n", name, unit)
	default:
		err = restart(cmd.Context(), env, unit)
	}
	return err
}

// runtimeHere is the one runtime that has something on the host.
func runtimeHere(host hostfs.Root) (string, error) {
	there := func(paths ...string) bool {
		return slices.ContainsFunc(paths, func(p string) bool { _, err := host.Stat(p); return err == nil })
	}
	containerd := there(containerdConfig, "/run/containerd/containerd.sock")
	crio := there(crioConfig, path.Dir(crioDropIn), "/run/crio/crio.sock")
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
	return "", &hinted{err: errors.New(what), hint: "name the runtime: --runtime containerd, or --runtime cri-o", usage: true}
}

// containerd changes the file, and returns the change as a diff.
func (e *enabling) containerd(env Env, host hostfs.Root) (string, error) {
	if e.file == "" {
		e.file = containerdConfig
	}
	setup, err := containerdFiles(runtimeFiles{host: host}, e.file)
	if errdefs.IsNotFound(err) {
		setup, err = &containerdSetup{files: []tomlFile{{name: e.file}}}, nil
	}
	if err != nil {
		return "", err
	}
	before := setup.files[0].text
	after, changes, err := containerdWithNRI(before)
	if err != nil {
		return "", err
	}
	for _, m := range setup.missing {
		if _, err := fmt.Fprintf(env.Stderr, "there is no %s: what it sets for NRI is not known\n", m); err != nil {
			return "", err
		}
	}
	if setup.on() {
		if setup.nri != nil {
			e.file = setup.nri.file
		}
		return "", nil
	}
	changed, err := setup.withMain(after)
	if err != nil {
		return "", err
	}
	if err := changed.overridden(); err != nil || len(changes) == 0 {
		return "", err
	}
	diff := unifiedDiff(e.file, before, after)
	if e.dry {
		return diff, nil
	}
	return diff, writeRuntimeFile(host, e.file, after)
}

// overridden refuses where files that are imported keep NRI off, whatever the main
// file says.
func (s *containerdSetup) overridden() error {
	main := s.files[0].name
	var todo, files []string
	add := func(by *said, what string) {
		if by.file == main {
			return
		}
		todo = append(todo, by.place+": "+what)
		if !slices.Contains(files, by.file) {
			files = append(files, by.file)
		}
	}
	if s.nri != nil && s.nri.value != "false" {
		add(s.nri, "set disable = false, where it has "+shortText(s.nri.value))
	}
	if by := s.replaced(); by != nil {
		add(by, "set disable = false in this [plugins.\""+nriPlugin+"\"], too: containerd 1.7 takes the table whole from the last file that has it")
	}
	if s.refusesConnections() {
		add(s.connect, "set disable_connections = false, where it has "+shortText(s.connect.value))
	}
	for i := range s.off {
		add(&s.off[i], "take "+nriPlugin+" out of disabled_plugins")
	}
	if len(todo) == 0 {
		return nil
	}
	return fmt.Errorf("an imported file keeps NRI off and takes precedence; nothing is changed:\n- %s\nedit it by hand, or give --config %s: %w",
		strings.Join(todo, "\n- "), strings.Join(files, ", then --config "), errdefs.ErrFailedPrecondition)
}

// crioHeader is the first line of the drop-in. It shows that this command wrote the file.
const crioHeader = "# Written by jackfield enable-nri.\n"

// crioDropInText is the drop-in that turns NRI on and, where a file before it has them off, the connections of plugins.
func crioDropInText(connections bool) string {
	text := crioHeader + "[crio.nri]\nenable_nri = true\n"
	if connections {
		text += "nri_disable_connections = false\n"
	}
	return text
}

// crio writes the drop-in, unless the configuration has NRI on, and returns the change as a diff.
func (e *enabling) crio(host hostfs.Root) (string, error) {
	if e.file == "" {
		e.file = crioDropIn
	}
	setup := crioFiles(runtimeFiles{host: host}, crioConfig)
	if err := errors.Join(setup.faults...); err != nil {
		return "", err
	}
	on, blocks := setup.key(crioNRITable, "enable_nri"), setup.blocks()
	if on != nil && len(blocks) == 0 {
		e.file = on.file
		return "", nil
	}
	for _, by := range blocks {
		if by.file != crioConfig && crioReadsAfter(by.file, e.file) {
			return "", fmt.Errorf("%s has %s = %s, and CRI-O reads that file later; set %s = %s there, or give --config a name that comes after it: %w",
				by.place, by.key, shortText(by.value), by.key, by.want, errdefs.ErrFailedPrecondition)
		}
	}
	before, err := readRuntimeFile(host, e.file)
	if err != nil {
		return "", err
	}
	own := func(text string) bool {
		return strings.TrimPrefix(before, "# Written by jackfield nri enable.\n") == strings.TrimPrefix(text, crioHeader) || before == text
	}
	if strings.TrimSpace(before) != "" && !own(crioDropInText(false)) && !own(crioDropInText(true)) {
		return "", fmt.Errorf("the file exists; set enable_nri = true and nri_disable_connections = false in its [crio.nri]: %w", errdefs.ErrAlreadyExists)
	}
	after := crioDropInText(slices.ContainsFunc(blocks, func(b crioBlock) bool { return b.want == "false" }))
	diff := unifiedDiff(e.file, before, after)
	if e.dry {
		return diff, nil
	}
	return diff, writeRuntimeFile(host, e.file, after)
}

// readRuntimeFile reads a configuration file; one that is not there is empty.
func readRuntimeFile(host hostfs.Root, file string) (string, error) {
	data, err := host.ReadFile(file, maxRuntimeFile)
	if errdefs.IsNotFound(err) {
		return "", nil
	}
	return string(data), err
}

// writeRuntimeFile replaces the file in one step, with the mode and owner that it
// had. A symlink stays, and what it leads to is replaced.
func writeRuntimeFile(host hostfs.Root, file, text string) error {
	like := hostfs.Own(0o644)
	st, err := host.Stat(file)
	switch {
	case err == nil:
		if file, err = host.Resolve(file); err != nil {
			return err
		}
		like = hostfs.Like{Mode: st.Mode & 0o7777, UID: int(st.Uid), GID: int(st.Gid)}
	case !errdefs.IsNotFound(err):
		return err
	}
	dir, err := host.MakeDir(path.Dir(file), 0o755)
	if err != nil {
		return err
	}
	defer dir.Close()
	return hostfs.ReplaceAt(int(dir.Fd()), path.Base(file), []byte(text), like)
}

// restart restarts a systemd unit.
func restart(ctx context.Context, env Env, unit string) error {
	out, err := exec.CommandContext(ctx, "systemctl", "restart", unit).CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl restart %s: %w: %s", unit, err, strings.TrimSpace(string(out)))
	}
	_, err = fmt.Fprintf(env.Stdout, "restarted %s\n", unit)
	return err
}
