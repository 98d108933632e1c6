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

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/report/status"
)

// completionTimeout bounds the request to the daemon: the shell waits for it.
const completionTimeout = 2 * time.Second

// addCompletionCommand adds cobra's command that writes a completion script to the root's output. Its mistakes in the
// command line are reported as those of the other commands.
func addCompletionCommand(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"}) // it is there
	for _, shell := range commandGroup(completion).Commands() {
		shell.Args = noArgs
	}
}

// completeFlag has the shell complete the values of a flag. A command without the flag is a defect
// of the program.
func completeFlag(cmd *cobra.Command, flag string, values cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, values); err != nil {
		panic(fmt.Sprintf("complete values of %s: %v", cmd.CommandPath(), err))
	}
}

// fixedValues completes one of the given values.
func fixedValues(values ...cobra.Completion) cobra.CompletionFunc {
	return cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp)
}

// completePrograms completes the programs that are not yet among the arguments.
func completePrograms(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	left := slices.DeleteFunc(programs(), func(name string) bool { return slices.Contains(args, name) })
	return left, cobra.ShellCompDirectiveNoFileComp
}

// completeDevices completes the CDI devices of the node.
func (n *hostFlags) completeDevices(env Env) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		registry, _, err := n.openRegistry(cmd, env, false)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer registry.Close()
		return registry.Snapshot().Devices(), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeFromStatus completes words that are taken from the daemon's status. The shell filters them.
func (n *hostFlags) completeFromStatus(words func(*status.Node) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		host, err := n.openHost(cmd)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		now, err := status.Find(ctx, host, config.StateDirs(host, n.configFile))
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all := words(now)
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeNamedSockets completes the named sockets of the configuration.
func (n *hostFlags) completeNamedSockets(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion,
	cobra.ShellCompDirective) {
	local, err := n.openNode(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(local.cfg.Sockets.Named)), cobra.ShellCompDirectiveNoFileComp
}

// containerIDs are the containers that the daemon injected something into, or that lack their requests.
func containerIDs(now *status.Node) []cobra.Completion {
	var words []cobra.Completion
	for _, c := range slices.Concat(now.Containers, now.Missed) {
		words = append(words, cobra.CompletionWithDesc(plain(c.ContainerID),
			plain(strings.Trim(c.Namespace+"/"+c.Pod+"/"+c.Container, "/"))))
	}
	return words
}

// podsAndContainers are these containers and their pods.
func podsAndContainers(now *status.Node) []cobra.Completion {
	words := containerIDs(now)
	for _, c := range slices.Concat(now.Containers, now.Missed) {
		if c.Pod != "" {
			words = append(words, plain(c.Namespace+"/"+c.Pod))
		}
	}
	return words
}

// sandboxIDs are the sandboxes of the node, with their pods where these are known.
func sandboxIDs(now *status.Node) []cobra.Completion {
	pods := map[string]string{}
	for _, c := range slices.Concat(now.Containers, now.Missed) {
		pods[c.Sandbox] = c.Namespace + "/" + c.Pod
	}
	var words []cobra.Completion
	for _, s := range now.Sandboxes {
		words = append(words, cobra.CompletionWithDesc(plain(s.ID), plain(pods[s.ID])))
	}
	return words
}
