// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hook"
	"github.com/jackfield/jackfield/pkg/version"
)

// Exit statuses of all commands; exitStatus is the table.
const (
	ExitOK    = 0 // the answer is yes
	ExitNo    = 1 // the answer is no: refused, invalid, not there
	ExitUsage = 2 // the command line cannot be understood
	ExitError = 3 // there is no answer: something could not be read, done or checked
)

// exitStatus is the exit status for what a command returns.
func exitStatus(err error) int {
	var (
		h       *hinted
		denied  *deniedError
		badInfo deviceinfo.Diagnostics
		badSpec *cdiregistry.SpecError
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &h) && h.usage:
		return ExitUsage
	case errors.Is(err, errAnswerNo), errors.As(err, &denied), errors.As(err, &badInfo), errors.As(err, &badSpec):
		return ExitNo
	}
	return ExitError
}

// deniedError is a container that gets nothing because a request of it is refused or cannot be delivered.
type deniedError struct{ err error }

func (e *deniedError) Error() string { return e.err.Error() }
func (e *deniedError) Unwrap() error { return e.err }

// Env is what a command sees of its surroundings.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// errNoAnswer ends a command whose output says already what could not be checked.
var errNoAnswer = errors.New("not everything could be checked")

// errAnswerNo ends a command whose output says already why the answer is no.
var errAnswerNo = errors.New("the answer is no")

// hinted is an error, and what to do about it in a line of its own.
type hinted struct {
	err   error
	hint  string
	usage bool // a mistake in the command line
}

func (e *hinted) Error() string { return e.err.Error() }
func (e *hinted) Unwrap() error { return e.err }

// usagef is a mistake in the command line; the hint is the command's own help.
func usagef(cmd *cobra.Command, format string, args ...any) error {
	return &hinted{err: fmt.Errorf(format, args...), hint: seeHelp(cmd), usage: true}
}

func seeHelp(cmd *cobra.Command) string {
	return fmt.Sprintf("run `%s --help`", cmd.CommandPath())
}

// Run executes the command line and gives the exit status.
func Run(ctx context.Context, args []string, env Env) int {
	if len(args) > 0 && args[0] == hook.Full {
		return runHook(ctx, args[1:], env)
	}
	cmd := command(env)
	cmd.SetArgs(args)
	cmd.SetIn(env.Stdin)
	cmd.SetOut(env.Stdout)
	cmd.SetErr(env.Stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil || errors.Is(err, errAnswerNo) || errors.Is(err, errNoAnswer) {
		return exitStatus(err)
	}
	env.say("%s", errorText(err))
	var h *hinted
	if errors.As(err, &h) && h.hint != "" {
		env.say("hint: %s", h.hint)
	}
	return exitStatus(err)
}

// say is a message for the person at the terminal. Further lines are indented.
func (e Env) say(format string, args ...any) {
	text := plainLines(fmt.Sprintf(format, args...))
	fmt.Fprintf(e.Stderr, "jackfield: %s\n", strings.ReplaceAll(text, "\n", "\n  "))
}

const rootLong = `Jackfield gives containers the devices and fast-path sockets that they were
granted. This command explains what a pod would get on this node, checks the
files that decide it, and shows what the node offers.

Exit status: 0 when the answer is yes; 1 when it is no (refused, invalid, not
there); 2 when the command line cannot be understood; 3 when there is no answer,
because something could not be read, done or checked.`

func command(env Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "jackfield",
		Short:         "Devices and fast-path sockets for containers",
		Long:          rootLong,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		explainCommand(env), validateCommand(env), deviceInfoCommand(env), devicesCommand(env), versionCommand(env),
	)
	root.AddCommand(injectCommand(env), cdiCommand(env), policyCommand(env), statusCommand(env), doctorCommand(env), enableNRICommand(env), nriCommand(env), installCommand(env), completionCommand(env))
	root.SetHelpCommand(helpCommand())
	return root
}

// group is a command that has only subcommands.
func group(cmd *cobra.Command, subs ...*cobra.Command) *cobra.Command {
	cmd.Args = cobra.ArbitraryArgs
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return usagef(cmd, "%swant one of %s", inCommand(cmd), strings.Join(verbs(cmd), ", "))
	}
	cmd.AddCommand(subs...)
	return cmd
}

func verbs(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	slices.Sort(names)
	return names
}

// unknownCommand names the commands that may have been meant.
func unknownCommand(cmd *cobra.Command, name string) error {
	hint := fmt.Sprintf("the commands are %s", strings.Join(verbs(cmd), ", "))
	if near := nearestWord(name, verbs(cmd)); near != "" {
		hint = fmt.Sprintf("did you mean `%s %s`? %s", cmd.CommandPath(), near, hint)
	}
	return &hinted{err: fmt.Errorf("%sthere is no command %q", inCommand(cmd), name), hint: hint, usage: true}
}

// inCommand begins a message about a subcommand's own command line.
func inCommand(cmd *cobra.Command) string {
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
			at := cmd.Root()
			for _, name := range args {
				next := slices.IndexFunc(at.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
				if next < 0 {
					return unknownCommand(at, name)
				}
				at = at.Commands()[next]
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
			if err := out.check(cmd); err != nil {
				return err
			}
			return out.write(env.Stdout, version.Get(), func(w io.Writer) error {
				_, err := fmt.Fprintln(w, version.Line("jackfield"))
				return err
			})
		},
	}
	out.flag(cmd)
	return cmd
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef(cmd, "%sfound the argument %q, want none", inCommand(cmd), args[0])
	}
	return nil
}

// oneArg is for commands with one argument, called name in messages.
func oneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usagef(cmd, "%s%s is missing", inCommand(cmd), name)
		case len(args) > 1:
			return usagef(cmd, "%swant one %s; found %q beside it", inCommand(cmd), name, args[1])
		}
		return nil
	}
}
