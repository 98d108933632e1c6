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

const nriEnableLong = `enable has the container runtime's configuration turn NRI on, which containerd
1.7 and CRI-O before 1.30 have off. Nothing else in the file changes: comments and
order stay. A file that has NRI on already is left alone.

containerd: the file itself is edited (versions 2 to 4). What it imports is read as
containerd reads it; where that keeps NRI off, nothing is changed, and the error
names the file and line to change. CRI-O: a drop-in is
written, ` + crioDropIn + `.

The runtime takes it at its next start, and is restarted only with --restart, by
systemctl. Running containers go on meanwhile.`

// enabling is the command's flags.
type enabling struct {
	root, runtime, file string
	restart, dry        bool
}

func nriCommand(env Env) *cobra.Command {
	var e enabling
	cmd := &cobra.Command{
		Use:   "enable [--runtime containerd|cri-o]",
		Short: "Turn NRI on in the runtime's configuration",
		Long:  nriEnableLong,
		Example: "  jackfield nri enable --dry-run\n" +
			"  jackfield nri enable --runtime containerd --restart",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return e.run(cmd, env) },
	}
	f := cmd.Flags()
	f.StringVar(&e.runtime, "runtime", "", "containerd or cri-o (default: the one that has a configuration or a socket here)")
	f.StringVar(&e.file, "config", "", "`file` to change, a host path (default "+containerdConfig+", or "+crioDropIn+")")
	f.BoolVar(&e.restart, "restart", false, "restart the runtime's systemd unit when the file was changed")
	f.BoolVar(&e.dry, "dry-run", false, "change nothing, and say what would be changed")
	f.StringVar(&e.root, "root", "/", "take all host paths below this `directory`")
	return group(&cobra.Command{Use: "nri", Short: "Turn NRI on in the container runtime"}, cmd)
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
		unit    string
		changes []string
	)
	switch e.runtime {
	case "containerd":
		unit = "containerd"
		changes, err = e.containerd(env, host)
	case "cri-o", "crio":
		unit = "crio"
		changes, err = e.crio(host)
	default:
		return usagef(cmd, "--runtime: found %q, want containerd or cri-o", e.runtime)
	}
	if err != nil {
		return fmt.Errorf("turn NRI on in %s: %w", e.file, err)
	}
	verb := "changed"
	switch {
	case len(changes) == 0:
		_, err := fmt.Fprintf(env.Stdout, "%s: NRI is on, nothing changed\n", e.file)
		return err
	case e.dry:
		verb = "would be changed"
	}
	for _, c := range changes {
		if _, err := fmt.Fprintf(env.Stdout, "%s: %s: %s\n", e.file, verb, c); err != nil {
			return err
		}
	}
	if e.dry {
		return nil
	}
	if !e.restart {
		_, err := fmt.Fprintf(env.Stdout, "%s takes it at its next start: systemctl restart %s\n", e.runtime, unit)
		return err
	}
	return restart(cmd.Context(), env, unit)
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
	return "", &hinted{err: errors.New(what), hint: "say which: --runtime containerd, or --runtime cri-o", usage: true}
}

func (e *enabling) containerd(env Env, host hostfs.Root) ([]string, error) {
	if e.file == "" {
		e.file = containerdConfig
	}
	setup, err := containerdFiles(runtimeFiles{host: host}, e.file)
	if errdefs.IsNotFound(err) {
		setup, err = &containerdSetup{files: []containerdFile{{name: e.file}}}, nil
	}
	if err != nil {
		return nil, err
	}
	text, changes, err := containerdWithNRI(setup.files[0].text)
	if err != nil {
		return nil, err
	}
	for _, m := range setup.missing {
		if _, err := fmt.Fprintf(env.Stderr, "there is no %s: what it says of NRI is not known\n", m); err != nil {
			return nil, err
		}
	}
	if setup.on() {
		if setup.nri != nil {
			e.file = setup.nri.file
		}
		return nil, nil
	}
	if err := setup.overridden(); err != nil || e.dry || len(changes) == 0 {
		return changes, err
	}
	return changes, writeRuntimeFile(host, e.file, text)
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
	for i := range s.off {
		add(&s.off[i], "take "+nriPlugin+" out of disabled_plugins")
	}
	if len(todo) == 0 {
		return nil
	}
	return fmt.Errorf("what it imports keeps NRI off, and takes precedence; nothing is changed:\n- %s\ndo so by hand, or give --config %s: %w",
		strings.Join(todo, "\n- "), strings.Join(files, ", then --config "), errdefs.ErrFailedPrecondition)
}

// crio writes the drop-in, unless what is there has NRI on.
func (e *enabling) crio(host hostfs.Root) ([]string, error) {
	if e.file == "" {
		e.file = crioDropIn
	}
	files := []string{crioConfig}
	dir := path.Dir(crioDropIn)
	names, err := host.ReadDir(dir, 10000)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	for _, name := range names {
		files = append(files, path.Join(dir, name))
	}
	says, by := "", ""
	for _, file := range files {
		text, err := readRuntimeFile(host, file)
		var said string
		if err == nil {
			said, err = crioSaysNRI(text)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if said != "" {
			says, by = said, file
		}
	}
	if says == "true" {
		e.file = by
		return nil, nil
	}
	if by > e.file && path.Dir(by) == path.Dir(e.file) {
		return nil, fmt.Errorf("%s comes after it and has enable_nri = %s; change that file, or give --config a name behind it: %w", by, says, errdefs.ErrFailedPrecondition)
	}
	if old, err := readRuntimeFile(host, e.file); err != nil || strings.TrimSpace(old) != "" {
		return nil, errors.Join(err, fmt.Errorf("the file is there, and without enable_nri = true in [crio.nri]: put that there: %w", errdefs.ErrAlreadyExists))
	}
	changes := []string{"enable_nri = true"}
	if e.dry {
		return changes, nil
	}
	return changes, writeRuntimeFile(host, e.file, "# Written by jackfield nri enable.\n[crio.nri]\nenable_nri = true\n")
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
