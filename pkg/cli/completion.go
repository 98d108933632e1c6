// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/status"
)

// completionTime bounds what a completion asks of the daemon: the shell waits for it.
const completionTime = 2 * time.Second

const completionLong = `completion writes a script to standard output. With it the shell completes commands,
flags and their values. Write it to the shell's directory of completions, or load it
into the shell that runs:

  source <(jackfield completion bash)
  source <(jackfield completion zsh)
  jackfield completion fish | source
  jackfield completion powershell | Out-String | Invoke-Expression`

func completionCommand(env Env) *cobra.Command {
	var bare bool
	write := map[string]func(*cobra.Command) error{
		"bash": func(root *cobra.Command) error { return root.GenBashCompletionV2(env.Stdout, !bare) },
		"zsh": func(root *cobra.Command) error {
			if bare {
				return root.GenZshCompletionNoDesc(env.Stdout)
			}
			return root.GenZshCompletion(env.Stdout)
		},
		"fish": func(root *cobra.Command) error { return root.GenFishCompletion(env.Stdout, !bare) },
		"powershell": func(root *cobra.Command) error {
			if bare {
				return root.GenPowerShellCompletion(env.Stdout)
			}
			return root.GenPowerShellCompletionWithDesc(env.Stdout)
		},
	}
	shells := slices.Sorted(maps.Keys(write))
	cmd := &cobra.Command{
		Use:       "completion SHELL",
		Short:     "Write a completion script for " + strings.Join(shells, ", "),
		Long:      completionLong,
		Args:      oneArg("SHELL"),
		ValidArgs: shells,
		RunE: func(cmd *cobra.Command, args []string) error {
			writeScript := write[args[0]]
			if writeScript == nil {
				return usagef(cmd, "%sfound the shell %q, want one of %s", inCommand(cmd), args[0], strings.Join(shells, ", "))
			}
			return writeScript(cmd.Root())
		},
	}
	cmd.Flags().BoolVar(&bare, "no-descriptions", false, "leave out the descriptions of what is completed")
	return cmd
}

// completeFlag has the shell complete the values of a flag. A command without that flag is a defect of the program.
func completeFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(fmt.Sprintf("complete values of %s: %v", cmd.CommandPath(), err))
	}
}

// fixedValues completes one of the values.
func fixedValues(values ...cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// completePrograms completes the programs that are not among the arguments yet.
func completePrograms(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	left := slices.DeleteFunc(programs(), func(name string) bool { return slices.Contains(args, name) })
	return left, cobra.ShellCompDirectiveNoFileComp
}

// completeDevices completes the CDI devices of the node.
func (n *node) completeDevices(env Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		host, cfg, err := n.load(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		registry, err := n.registry(env, host, cfg, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer registry.Close()
		return registry.Snapshot().Devices(), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeContainers completes the pods and containers that the daemon gave something.
func (n *node) completeContainers(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	host, cfg, err := n.load(cmd)
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	now, err := status.Get(ctx, host, cfg.StateDir)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []cobra.Completion
	for _, c := range slices.Concat(now.Containers, now.Missed) {
		if c.Pod != "" {
			words = append(words, plain(c.Namespace+"/"+c.Pod))
		}
		words = append(words, cobra.CompletionWithDesc(plain(c.ContainerID), plain(strings.Trim(c.Namespace+"/"+c.Pod+"/"+c.Container, "/"))))
	}
	slices.Sort(words)
	return slices.Compact(words), cobra.ShellCompDirectiveNoFileComp
}
