// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/version"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Exit statuses of all commands; see exitStatus.
const (
	ExitOK    = 0 // the answer is yes
	ExitNo    = 1 // the answer is no: refused, invalid, not there
	ExitUsage = 2 // the command line cannot be understood
	ExitError = 3 // there is no answer: something could not be read, done or checked
)

// exitStatus returns the exit status for the error of a command.
func exitStatus(err error) int {
	hinted, _ := errors.AsType[*hintedError](err)
	_, isDenied := errors.AsType[*deniedError](err)
	_, isBadInfo := errors.AsType[deviceinfo.FieldErrors](err)
	_, isBadSpec := errors.AsType[*cdi.SpecError](err)
	switch {
	case err == nil:
		return ExitOK
	case hinted != nil && hinted.usage:
		return ExitUsage
	case errors.Is(err, errAnswerNo), isDenied, isBadInfo, isBadSpec:
		return ExitNo
	}
	return ExitError
}

// deniedError is a container that gets nothing because one of its requests is refused or cannot be
// delivered.
type deniedError struct{ err error }

func (e *deniedError) Error() string { return e.err.Error() }
func (e *deniedError) Unwrap() error { return e.err }

// Env is the environment of a command.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// errNoAnswer ends a command whose output already lists the requests that could not be checked.
var errNoAnswer = errors.New("not everything could be checked")

// errAnswerNo ends a command whose output already says why the answer is no.
var errAnswerNo = errors.New("the answer is no")

// hintedError is an error with a hint, which is printed on a line of its own.
type hintedError struct {
	err   error
	hint  string
	usage bool // a mistake in the command line
}

func (e *hintedError) Error() string { return e.err.Error() }
func (e *hintedError) Unwrap() error { return e.err }

// usagef returns a mistake in the command line. Its hint is the command's own help.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &hintedError{err: fmt.Errorf(format, args...), hint: helpHint(cmd), usage: true}
}

func helpHint(cmd *cobra.Command) string {
	return fmt.Sprintf("run `%s --help`", cmd.CommandPath())
}

// Run executes the command line and returns the exit status.
func Run(ctx context.Context, args []string, env Env) int {
	cmd := Command(env)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil || errors.Is(err, errAnswerNo) || errors.Is(err, errNoAnswer) {
		return exitStatus(err)
	}
	env.message("%v", err)
	if h, ok := errors.AsType[*hintedError](err); ok && h.hint != "" {
		env.message("hint: %s", h.hint)
	}
	return exitStatus(err)
}

// message prints a message to standard error. Further lines are indented. The texts of errors have no sentinels.
func (e Env) message(format string, args ...any) {
	text := plainLines(diag.Sprintf(format, args...))
	fmt.Fprintf(e.Stderr, "jackfield: %s\n", strings.ReplaceAll(text, "\n", "\n  "))
}

const rootLong = `Jackfield injects devices and fast-path sockets into the containers that were
granted them. This command explains what a pod would get on this node, checks
the files that decide it, and shows what the node offers.`

// rootUsageEnd ends the usage of the root.
const rootUsageEnd = `
Exit status: 0 yes; 1 no; 2 mistake in the command line; 3 no answer.
Learn more: jackfield(1), jackfield.yaml(5), https://github.com/jackfield/jackfield
`

// Command returns the tree of jackfield's commands. Run executes it; man pages and tests of the
// documentation read it.
func Command(env Env) *cobra.Command {
	root := commandGroup(&cobra.Command{
		Use:           "jackfield",
		Short:         "Devices and fast-path sockets for containers",
		Long:          rootLong,
		Example:       "  jackfield explain pod.yaml",
		SilenceErrors: true,
		SilenceUsage:  true,
	}, versionCommand(env))
	addVersionFlag(root)
	addGroup(root, "Inspect pods and the node:",
		explainCommand(env), statusCommand(env), socketsCommand(env), doctorCommand(env), devicesCommand(env))
	addGroup(root, "Check files:", validateCommand(env), policyCommand(env))
	addGroup(root, "Change the node and its files:",
		injectCommand(env), deviceInfoCommand(env), cdiCommand(env), enableNRICommand(env), copyProgramsCommand(env))
	usage := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		err := usage(cmd)
		if !cmd.HasParent() {
			fmt.Fprint(cmd.OutOrStderr(), rootUsageEnd)
		}
		return err
	})
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.SetFlagErrorFunc(flagError)
	addCompletionCommand(root)
	root.SetHelpCommand(helpCommand())
	return root
}

// addVersionFlag adds --version to the root. cobra's own flag, and its templates, would link text/template, and with it
// all exported methods: the program would be 15 % larger and start more slowly.
func addVersionFlag(root *cobra.Command) {
	show := root.Flags().BoolP("version", "v", false, "version for jackfield")
	run := root.RunE
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if *show && len(args) == 0 {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "jackfield", version.String())
			return err
		}
		return run(cmd, args)
	}
}

// addGroup adds commands that the help shows under a title.
func addGroup(root *cobra.Command, title string, cmds ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: title, Title: title})
	for _, cmd := range cmds {
		cmd.GroupID = title
	}
	root.AddCommand(cmds...)
}

// commandGroup returns a command that has only subcommands. Alone, the root prints its help.
func commandGroup(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return unknownCommand(cmd, args[0])
		case !cmd.HasParent():
			return cmd.Help()
		}
		return usagef(cmd, "%sa command is missing: must be one of %s", commandPrefix(cmd),
			strings.Join(subcommands(cmd), ", "))
	}
	cmd.AddCommand(subs...)
	return cmd
}

// subcommands returns the names of a command's subcommands, which cobra sorts.
func subcommands(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// unknownCommand returns an error whose hint names the command that was probably meant.
func unknownCommand(cmd *cobra.Command, name string) error {
	hint := fmt.Sprintf("the commands are %s", strings.Join(subcommands(cmd), ", "))
	if near := nearestWord(name, subcommands(cmd)); near != "" {
		hint = fmt.Sprintf("did you mean `%s %s`? %s", cmd.CommandPath(), near, hint)
	}
	return &hintedError{err: fmt.Errorf("%sthere is no command %q", commandPrefix(cmd), name), hint: hint, usage: true}
}

// commandPrefix begins a message about a subcommand's own command line.
func commandPrefix(cmd *cobra.Command) string {
	if !cmd.HasParent() {
		return ""
	}
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ") + ": "
}

func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			at, unknown, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(unknown) > 0 {
				return unknownCommand(at, unknown[0])
			}
			at.InitDefaultHelpFlag()
			at.InitDefaultVersionFlag()
			return at.Help()
		},
	}
}

func versionCommand(env Env) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return out.writeResult(env, version.Get(), func() string { return version.Line("jackfield") + "\n" })
		},
	}
	out.addFlag(cmd)
	return cmd
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%sunexpected argument %q", commandPrefix(cmd), args[0])
	}
	return nil
}

// exactlyOneArg accepts one argument, which messages call name.
func exactlyOneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef(cmd, "%s%s is missing", commandPrefix(cmd), name)
		case len(args) > 1:
			return usagef(cmd, "%sunexpected argument %q: must be one %s", commandPrefix(cmd), args[1], name)
		}
		return nil
	}
}
