// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/report/policyeval"
)

func policyCommand(env Env) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "policy",
		Short: "Check requests against the policy, test it, and suggest rules",
	}, policyCheckCommand(env), policySuggestCommand(env), policyTestCommand(env))
}

// loadPolicy compiles the policy of the node's configuration.
func (n *hostFlags) loadPolicy(cmd *cobra.Command) (*policyeval.Policy, error) {
	local, err := n.openNode(cmd)
	if err != nil {
		return nil, err
	}
	return policyeval.New(local.cfg)
}

const policyTestLong = `test runs the cases in the YAML files of a directory (or in one file) against
the policy, and prints each case with another outcome than it expects. It is for
the checks of a repository that holds a node's configuration.

A file holds cases, and may name the configuration they are about, relative to
itself; otherwise --config names it. The page jackfield.yaml(5) has the format.

The exit status is 1 when a case fails, and 3 when there is none.`

func policyTestCommand(env Env) *cobra.Command {
	var (
		n   hostFlags
		out output
	)
	cmd := &cobra.Command{
		Use:     "test DIR|FILE",
		Short:   "Run a directory of test cases against the policy",
		Long:    policyTestLong,
		Example: "  jackfield policy test --config config.yaml policy-tests",
		Args:    exactlyOneArg("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			results, err := policyeval.RunCases(args[0], env.Stdin, func(configFile string) (*policyeval.Policy, error) {
				flags := hostFlags{configFile: cmp.Or(configFile, n.configFile), root: n.root}
				return flags.loadPolicy(cmd)
			})
			if err != nil {
				return err
			}
			return printResults(env, out, results)
		},
	}
	n.addFlags(cmd)
	out.addFlag(cmd)
	return cmd
}

// printResults prints the failed cases and the number of passed cases. The exit status is 1 if a case failed.
func printResults(env Env, out output, results []policyeval.CaseResult) error {
	failed := 0
	var b strings.Builder
	for i := range results {
		r := &results[i]
		if r.Passed {
			continue
		}
		failed++
		b.WriteString("FAIL " + plain(r.File) + ": " + plain(r.Name) + "\n")
		for _, line := range r.Diff {
			b.WriteString("  " + plain(line) + "\n")
		}
	}
	fmt.Fprintf(&b, "%d of %d passed\n", len(results)-failed, len(results))
	return answerError(out.writeResult(env, results, b.String), failed > 0, false)
}
