// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/report/policyeval"
)

const policySuggestLong = `suggest reads the audit log and prints the smallest rules that grant exactly what
containers asked for, whether they got it or not: for each namespace one rule, and
one more for each network that brought sockets or devices. Run the node in mode
audit for a while, and use the rules in mode enforce.

Without FILE, suggest reads audit.file of the configuration; - is standard input.
Give rotated files first. Comments list requests that a rule denies, and names that
a rule cannot match exactly. Ports of vswitches are not in the audit log.

The exit status is 3 when the log has nothing that was asked for.`

func policySuggestCommand(env Env) *cobra.Command {
	var (
		n     hostFlags
		out   output
		log   policyeval.AuditLog
		since time.Duration
	)
	cmd := &cobra.Command{
		Use:     "suggest [FILE...]",
		Short:   "Suggest rules from the audit log",
		Long:    policySuggestLong,
		Example: "  jackfield policy suggest --since 24h -n telco",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case since < 0:
				return usagef(cmd, "--since: invalid value %s: must not be negative", since)
			case since > 0:
				log.After = time.Now().Add(-since)
			}
			if err := n.readLogs(cmd, env, &log, args); err != nil {
				return err
			}
			return printSuggestion(env, out, &log)
		},
	}
	n.addFlags(cmd)
	f := cmd.Flags()
	f.DurationVar(&since, "since", 0, "read only the lines of the last `DURATION`, such as 24h; 0 for all")
	addNamespaceFlag(cmd, &log.Namespace, "the pods whose requests are read (default: all)")
	out.addFlag(cmd)
	return cmd
}

// readLogs reads the audit logs, or the one of the node's configuration if none is named.
func (n *hostFlags) readLogs(cmd *cobra.Command, env Env, log *policyeval.AuditLog, files []string) error {
	for _, file := range files {
		if err := log.ReadFile(file, env.Stdin); err != nil {
			return fmt.Errorf("read audit log %q: %w", file, err)
		}
	}
	if len(files) > 0 {
		return nil
	}
	local, err := n.openNode(cmd)
	if err != nil {
		return err
	}
	file := local.cfg.AuditLog.File
	if file == "" {
		return fmt.Errorf("suggest rules: the configuration names no audit.file; name a file, or set audit.file and let "+
			"containers run: %w", errdefs.ErrFailedPrecondition)
	}
	f, err := local.host.Open(file, unix.O_RDONLY)
	if err == nil {
		err = log.Read(f)
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("read audit log %q: %w", file, err)
	}
	return nil
}

// suggestion is the output of suggest for programs.
type suggestion struct {
	Rules      []any        `json:"rules"` // as in policy.rules of a configuration
	NotGranted []notGranted `json:"notGranted"`
}

// notGranted is a request that no suggested rule grants, because a rule denies it or no pattern can match its name.
type notGranted struct {
	Namespace string `json:"namespace"`
	policy.Asked
}

func printSuggestion(env Env, out output, log *policyeval.AuditLog) error {
	rules, left := policy.Suggest(log.Asked)
	if log.Broken > 0 {
		env.message("warning: skipped %s in another format than the audit log's", diag.Count(log.Broken, "line"))
	}
	if log.Incomplete > 0 {
		env.message("warning: the log leaves out some requests of %s", diag.Count(log.Incomplete, "container"))
	}
	if len(rules)+len(left) == 0 {
		return fmt.Errorf("suggest rules: the log has nothing that a container asked for: %w", errdefs.ErrNotFound)
	}
	text := suggestionText(rules, left)
	var configuration struct{ Policy struct{ Rules []any } }
	if err := yaml.Unmarshal([]byte(text), &configuration); err != nil {
		return fmt.Errorf("suggest rules: %w", err)
	}
	result := suggestion{Rules: configuration.Policy.Rules}
	for _, s := range left {
		result.NotGranted = append(result.NotGranted, notGranted(s))
	}
	return out.writeResult(env, result, func() string { return text })
}

// suggestionText returns a configuration with the rules, and a comment for each request that they do not grant.
func suggestionText(rules []policy.Rule, left []policy.Suggestion) string {
	var b strings.Builder
	if len(rules) > 0 {
		b.WriteString("policy:\n  rules:\n")
	}
	for i := range rules {
		r := &rules[i]
		b.WriteString("    - name: " + r.Name + "\n      for: {namespaces: [" + strconv.Quote(r.For.Namespaces[0]) +
			"]}\n      allow:\n")
		for _, list := range []struct {
			name   string
			values []string
		}{
			{"cdi", r.Allow.CDI}, {"sockets", r.Allow.Sockets}, {"namedSockets", r.Allow.NamedSockets}, {"devices",
				r.Allow.Devices}, {"hooks", r.Allow.Hooks}, {"networks", r.Allow.Networks},
		} {
			if len(list.values) > 0 {
				b.WriteString("        " + list.name + ":\n")
			}
			for _, v := range list.values {
				b.WriteString("          - " + strconv.Quote(v) + "\n")
			}
		}
		if len(r.Allow.Mounts) > 0 {
			b.WriteString("        mounts:\n")
		}
		for _, m := range r.Allow.Mounts {
			b.WriteString("          - " + m.FormatYAML() + "\n")
		}
	}
	for _, a := range left {
		why := "a rule cannot match this name exactly"
		if a.DeniedBy != "" {
			why = "rule " + diag.Quote(a.DeniedBy) + " denies it"
		}
		b.WriteString("# not granted to namespace " + diag.Quote(a.Namespace) + ": " + plain(a.List) + " " +
			diag.Quote(a.Name) + ": " + why + "\n")
	}
	return b.String()
}
