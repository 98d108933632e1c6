// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/pkg/cdi"
)

const (
	nvidiaTool = "nvidia-ctk"
	// nvidiaTimeout bounds nvidia-ctk, which queries the driver.
	nvidiaTimeout = time.Minute
	// maxToolMessages bounds the messages of nvidia-ctk that are kept, in bytes. Among many others, it logs each
	// library that it finds.
	maxToolMessages = 4 << 10
)

// nvidiaFile is where NVIDIA's own tools write and read the file.
const nvidiaFile = "/etc/cdi/nvidia.yaml"

func generateNvidiaCommand(env Env) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "nvidia [flags] [-- OPTION...]",
		Short: "Generate the CDI file of this host's NVIDIA GPUs, with nvidia-ctk",
		Long: "nvidia runs `nvidia-ctk cdi generate` in a clean environment, checks the output\n" +
			"as any CDI file is checked, and writes the file in one step, with mode 0644. The\n" +
			"extension, .yaml or .json, chooses the syntax. The command prints the path. It\n" +
			"hands the options after -- to nvidia-ctk, and reports another file that declares\n" +
			"the same devices.",
		Example: "  jackfield cdi generate nvidia\n  jackfield cdi generate nvidia --out /var/run/cdi/nvidia.json\n  " +
			"jackfield cdi generate nvidia --out -\n" +
			"  jackfield cdi generate nvidia -- --mode=wsl",
		Args: toolOptions,
		RunE: func(cmd *cobra.Command, options []string) error {
			if ext := filepath.Ext(out); out != "-" && ext != ".yaml" && ext != ".json" {
				return usagef(cmd, "--out: invalid value %q: must end in .yaml or .json, or be - for standard output", out)
			}
			text, err := runNvidiaCTK(cmd.Context(), env, options)
			if err != nil {
				return err
			}
			spec, err := cdi.ParseSpec(text)
			if err != nil {
				return printDiagnostics(env, "the output of nvidia-ctk", err)
			}
			if out == "-" {
				_, err := env.Stdout.Write(text)
				return err
			}
			return writeGenerated(cmd, env, out, spec)
		},
	}
	cmd.Flags().StringVar(&out, "out", nvidiaFile, "`file` to write, - for standard output")
	return cmd
}

// toolOptions accepts options of nvidia-ctk after --. The command itself decides where the output goes.
func toolOptions(cmd *cobra.Command, args []string) error {
	if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
		return usagef(cmd, "%sunexpected argument %q: options of nvidia-ctk must follow --", commandPrefix(cmd), args[0])
	}
	for _, arg := range args {
		if name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "="); strings.HasPrefix(arg, "-") && name == "output" {
			return usagef(cmd, "%sinvalid option %q: set the file with --out before --", commandPrefix(cmd), arg)
		}
	}
	return nil
}

// writeGenerated writes a generated file, and reports why containers could not use it where it is.
func writeGenerated(cmd *cobra.Command, env Env, out string, spec *specs.Spec) error {
	abs, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	cache, err := cdi.NewCache(cdi.Options{SpecDirs: []string{filepath.Dir(abs)}, DisableWatch: true})
	if err != nil {
		return err
	}
	defer cache.Close()
	file, err := cache.WriteSpec(spec, filepath.Base(abs))
	if err != nil {
		return err
	}
	if faults, err := cdi.ValidateFile(file, cdi.ValidateOptions{}); err == nil {
		for _, f := range diag.All(file, faults).WithFile(file) {
			consequence := ""
			if !f.IsWarning() {
				consequence = "no container gets devices of it as it is: "
			}
			env.message("%s%s", consequence, f)
		}
	}
	if err := reportShadowing(cmd, env, file, spec); err != nil {
		env.message("cannot check whether another file declares the devices of %s: %s", file, diag.ErrorText(err))
	}
	_, err = io.WriteString(env.Stdout, pathsText([]string{file}))
	return err
}

// reportShadowing reports the files that the node reads for devices of a generated file in place of that file. A file
// that is in no CDI directory of the configuration shadows nothing and is not shadowed.
func reportShadowing(cmd *cobra.Command, env Env, file string, spec *specs.Spec) error {
	registry, _, err := (&hostFlags{root: "/"}).openRegistry(cmd, env, false)
	if err != nil {
		return err
	}
	defer registry.Close()
	s := registry.Snapshot()
	if !slices.ContainsFunc(s.Dirs(), func(d cdi.Dir) bool { return d.Path == filepath.Dir(file) }) {
		return nil
	}
	shadowed := map[string]int{}
	for _, device := range spec.Devices {
		d, err := s.Device(spec.Kind + "=" + device.Name)
		switch conflict := (*cdi.ConflictError)(nil); {
		case errors.As(err, &conflict):
			for _, other := range conflict.Files {
				shadowed[other]++
			}
		case err == nil:
			shadowed[d.File]++
		}
	}
	for _, other := range slices.Sorted(maps.Keys(shadowed)) {
		if isSameFile(other, file) { // /run/cdi and /var/run/cdi are one directory on most hosts
			continue
		}
		env.message("%s also declares %d of the %d devices, and hides or blocks them in %s: remove one of the two files; "+
			"the service nvidia-cdi-refresh of the NVIDIA Container Toolkit keeps /var/run/cdi/nvidia.yaml up to date",
			other, shadowed[other], len(spec.Devices), file)
	}
	return nil
}

// isSameFile reports whether two paths lead to one file.
func isSameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// cleanEnvironment is the hint of every failure of nvidia-ctk.
const cleanEnvironment = "nvidia-ctk ran in a clean environment, without LD_LIBRARY_PATH, NVIDIA_CTK_* and other " +
	"variables of yours; " +
	"pass its options after --, or run it in your environment: `nvidia-ctk cdi generate --output=" + nvidiaFile +
	"`, then `jackfield validate " + nvidiaFile + "`"

// runNvidiaCTK returns the output of `nvidia-ctk cdi generate` with options.
func runNvidiaCTK(ctx context.Context, env Env, options []string) ([]byte, error) {
	search := env.Getenv("PATH")
	tool, ok := lookPath(search, nvidiaTool)
	if !ok {
		return nil, &hintedError{
			err: fmt.Errorf("find %q: it is in no absolute directory of PATH: %w", nvidiaTool, errdefs.ErrNotFound),
			hint: "install the NVIDIA Container Toolkit: the package nvidia-container-toolkit-base of NVIDIA's repository has " +
				"nvidia-ctk; " +
				"the NVIDIA driver must be installed as well",
		}
	}
	ctx, cancel := context.WithTimeout(ctx, nvidiaTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, append([]string{"cdi", "generate"}, options...)...)
	// The caller's environment must not influence a file whose hooks root runs.
	cmd.Env = []string{"PATH=" + search, "HOME=/", "LANG=C.UTF-8"}
	cmd.Dir = "/"
	cmd.WaitDelay = time.Second
	var out specOutput
	var messages lastMessages
	cmd.Stdout, cmd.Stderr = &out, &messages
	err := cmd.Run()
	switch {
	case out.overflow:
		return nil, fmt.Errorf("run %q: it prints more than the %d bytes a CDI file may have: %w", tool, cdi.MaxFileSize,
			errdefs.ErrInvalidArgument)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s: %w", nvidiaTimeout, errdefs.ErrUnavailable)
	case errors.Is(err, exec.ErrWaitDelay):
		err = fmt.Errorf("it ended, and left a program behind that can still print: %w", errdefs.ErrUnavailable)
	}
	if err == nil {
		return out.text, nil
	}
	err = fmt.Errorf("run %q: %w", strings.Join(append([]string{tool, "cdi generate"}, options...), " "), err)
	if said := strings.TrimSpace(string(messages)); said != "" {
		err = fmt.Errorf("%w; it says:\n%s", err, said)
	}
	return nil, &hintedError{err: err, hint: cleanEnvironment}
}

// lookPath finds a program in the absolute directories of a search path. An administrator installs
// nothing in the current directory.
func lookPath(search, name string) (string, bool) {
	for _, dir := range filepath.SplitList(search) {
		if file, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(dir) {
			return file, true
		}
	}
	return "", false
}

// specOutput keeps an output of at most the size of a CDI file. A program that prints more gets a broken pipe.
type specOutput struct {
	text     []byte
	overflow bool
}

func (o *specOutput) Write(p []byte) (int, error) {
	if o.overflow = len(o.text)+len(p) > cdi.MaxFileSize; o.overflow {
		return 0, unix.EFBIG
	}
	o.text = append(o.text, p...)
	return len(p), nil
}

// lastMessages keeps the end of a program's messages, which has the reason of its failure.
type lastMessages []byte

func (m *lastMessages) Write(p []byte) (int, error) {
	*m = append(*m, p...)
	*m = (*m)[max(0, len(*m)-maxToolMessages):]
	return len(p), nil
}
