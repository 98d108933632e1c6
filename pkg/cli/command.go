// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/version"
)

// Exit statuses.
const (
	ExitOK    = 0
	ExitNo    = 1 // the answer is no: refused, invalid, not found
	ExitUsage = 2 // the question cannot be understood
)

// Env is what a command sees of its surroundings.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// specDirsEnv is CDI's variable for the directories of specification files.
const specDirsEnv = "CDI_SPEC_DIRS"

// errAnswerNo ends a command whose output says already why the answer is no.
var errAnswerNo = errors.New("the answer is no")

// usageError is a mistake in the command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Run executes the command line and gives the exit status.
func Run(ctx context.Context, args []string, env Env) int {
	cmd := command(env)
	cmd.SetArgs(args)
	cmd.SetIn(env.Stdin)
	cmd.SetOut(env.Stdout)
	cmd.SetErr(env.Stderr)
	err := cmd.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, errAnswerNo):
		return ExitNo
	case errors.As(err, &usage):
		fmt.Fprintf(env.Stderr, "jackfield: %v\n", err)
		return ExitUsage
	}
	fmt.Fprintf(env.Stderr, "jackfield: %v\n", err)
	return ExitNo
}

func command(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "jackfield",
		Short:         "Devices and fast-path sockets for containers",
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(explainCommand(env))
	return root
}

// node is the host that a command looks at.
type node struct {
	configFile, root string
}

func (n *node) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.configFile, "config", "", "configuration `file` (default "+config.DefaultPath+", when it exists)")
	cmd.Flags().StringVar(&n.root, "root", "/", "take all host paths below this `directory`")
}

// open reads the configuration and makes the engine. The caller closes it.
func (n *node) open(env Env) (*resolve.Engine, *config.Config, error) {
	host, err := hostfs.New(n.root)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := n.config(host)
	if err != nil {
		return nil, nil, err
	}
	engine, err := resolve.New(host, cfg, resolve.Options{
		Once: true, TrustAnyone: host.Dir() != "/", SpecDirs: cdiregistry.DirsFromEnv(env.Getenv(specDirsEnv)),
	})
	return engine, cfg, err
}

// config reads the file that was asked for, a path of the caller's own, or the
// node's when there is one.
func (n *node) config(host hostfs.Root) (*config.Config, error) {
	if n.configFile == "" {
		cfg, err := config.Load(host, config.DefaultPath)
		if errdefs.IsNotFound(err) {
			return config.Default(), nil
		}
		return cfg, err
	}
	abs, err := filepath.Abs(n.configFile)
	if err != nil {
		return nil, err
	}
	return config.Load(hostfs.Host(), abs)
}

// outputFlag adds -o with text and json.
func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "text", "text or json")
}

func checkOutput(format string) error {
	if format != "text" && format != "json" {
		return usageError{fmt.Errorf("--output: found %q, want text or json", format)}
	}
	return nil
}
