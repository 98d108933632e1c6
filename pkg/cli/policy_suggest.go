// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/status"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

const policySuggestLong = `suggest reads the audit log and prints the smallest rules that grant exactly what
containers asked for, whether they got it or not: for each namespace one rule, and
one more for each network that brought sockets or devices. Run the node in mode
audit for a while, and use the rules in mode enforce.

Without FILE, suggest reads audit.file of the configuration; - is standard input.
Give rotated files first. What a rule denies, and what no pattern can name, is
listed in comments. Ports of vswitches are not in the audit log.

The exit status is 3 when the log has nothing that was asked for.`

// maxLogLine bounds a line of the audit log. jackfield-nri writes shorter ones.
const maxLogLine = 1 << 20

// policySuggest are the flags of policy suggest, and what it has read.
type policySuggest struct {
	since     time.Duration
	namespace string

	after      time.Time
	asked      []policy.Suggestion
	broken     int // lines that are no lines of an audit log
	incomplete int // containers of which the log left something out
}

func policySuggestCommand(env Env) *cobra.Command {
	var (
		n hostFlags
		s policySuggest
	)
	cmd := &cobra.Command{
		Use:     "suggest [FILE...]",
		Short:   "Suggest rules from the audit log",
		Long:    policySuggestLong,
		Example: "  jackfield policy suggest --since 24h --namespace telco",
		Args:    cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.since < 0 {
				return usagef(cmd, "--since: found %s, want a time of 0 or more", s.since)
			}
			return s.run(cmd, env, &n, args)
		},
	}
	n.addFlags(cmd)
	f := cmd.Flags()
	f.DurationVar(&s.since, "since", 0, "read the lines of this last `time` only, such as 24h; 0 for all")
	f.StringVarP(&s.namespace, "namespace", "n", "", "only this `namespace`")
	return cmd
}

func (s *policySuggest) run(cmd *cobra.Command, env Env, n *hostFlags, files []string) error {
	if s.since > 0 {
		s.after = time.Now().Add(-s.since)
	}
	if len(files) == 0 {
		local, err := n.openNode(cmd)
		if err != nil {
			return err
		}
		if local.cfg.AuditLog.File == "" {
			return fmt.Errorf("suggest rules: the configuration names no audit.file; name a file, or set audit.file and let containers run: %w", errdefs.ErrFailedPrecondition)
		}
		f, err := local.host.Open(local.cfg.AuditLog.File, unix.O_RDONLY)
		if err == nil {
			err = s.read(f)
			f.Close()
		}
		if err != nil {
			return fmt.Errorf("read audit log %q: %w", local.cfg.AuditLog.File, err)
		}
	}
	for _, file := range files {
		if err := s.readFile(cmd, file); err != nil {
			return fmt.Errorf("read audit log %q: %w", file, err)
		}
	}
	rules, left := policy.Suggest(s.asked)
	if s.broken > 0 {
		env.message("warning: skipped %s in another format than the audit log's", diag.Count(s.broken, "line"))
	}
	if s.incomplete > 0 {
		env.message("warning: the log leaves out some requests of %s", diag.Count(s.incomplete, "container"))
	}
	if len(rules)+len(left) == 0 {
		return fmt.Errorf("suggest rules: the log has nothing that a container asked for: %w", errdefs.ErrNotFound)
	}
	_, err := io.WriteString(env.Stdout, suggestionText(rules, left))
	return err
}

func (s *policySuggest) readFile(cmd *cobra.Command, file string) error {
	if file == "-" {
		return s.read(cmd.InOrStdin())
	}
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe must not block
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("it is no regular file: %w", errdefs.ErrInvalidArgument))
	}
	return s.read(f)
}

// read adds what the lines of an audit log have.
func (s *policySuggest) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLogLine)
	for lines.Scan() {
		var line struct {
			Time time.Time `json:"time"`
			status.Container
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil || line.Time.IsZero() {
			s.broken++
			continue
		}
		if line.Time.Before(s.after) || s.namespace != "" && line.Namespace != s.namespace {
			continue
		}
		incomplete := line.More != ""
		for i := range line.Requests {
			for _, asked := range line.Requests[i].Asked {
				s.asked = append(s.asked, policy.Suggestion{Namespace: line.Namespace, Asked: policy.Asked(asked)})
			}
			incomplete = incomplete || len(line.Requests[i].Asked) >= resolve.MaxAsked
		}
		if incomplete {
			s.incomplete++
		}
	}
	return lines.Err()
}

// suggestionText returns a configuration with the rules, and comments about what they do not grant.
func suggestionText(rules []policy.Rule, left []policy.Suggestion) string {
	var b strings.Builder
	if len(rules) > 0 {
		b.WriteString("policy:\n  rules:\n")
	}
	for i := range rules {
		r := &rules[i]
		b.WriteString("    - name: " + r.Name + "\n      for: {namespaces: [" + strconv.Quote(r.For.Namespaces[0]) + "]}\n      allow:\n")
		for _, list := range []struct {
			name   string
			values []string
		}{
			{"cdi", r.Allow.CDI}, {"sockets", r.Allow.Sockets}, {"namedSockets", r.Allow.NamedSockets}, {"devices", r.Allow.Devices}, {"hooks", r.Allow.Hooks}, {"networks", r.Allow.Networks},
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
			b.WriteString("          - {source: " + strconv.Quote(m.Source) + ", destination: " + strconv.Quote(m.Destination))
			if m.ReadOnly {
				b.WriteString(", readOnly: true")
			}
			b.WriteString("}\n")
		}
	}
	for _, a := range left {
		why := "no pattern can name it alone"
		if a.DeniedBy != "" {
			why = "rule " + diag.Quote(a.DeniedBy) + " denies it"
		}
		b.WriteString("# not granted to namespace " + diag.Quote(a.Namespace) + ": " + plain(a.List) + " " + diag.Quote(a.Name) + ": " + why + "\n")
	}
	return b.String()
}
