// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// explanation is what explain prints of one container.
type explanation struct {
	Container string         `json:"container"`
	Created   bool           `json:"created"` // false: the container would be refused
	Error     string         `json:"error,omitempty"`
	Requests  []resolve.Item `json:"requests"`
	Edits     edits.Set      `json:"edits"`
}

func explainCommand(env Env) *cobra.Command {
	var (
		n                              node
		podFile, only, sandbox, format string
	)
	cmd := &cobra.Command{
		Use:   "explain --pod FILE",
		Short: "Tell what a pod's containers would get here, from which file, by which rule, or why not",
		Long: "explain resolves a pod's requests on this node as the NRI plugin would, changes nothing, and prints for each container\n" +
			"what would be injected, from which file, by which policy rule, or why not. The exit status is 1 when a container\n" +
			"would be refused.\n\n" +
			"Network attachments are found by the ID of the pod's sandbox; without --sandbox-id there are none.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(format); err != nil {
				return err
			}
			if podFile == "" {
				return usageError{fmt.Errorf("--pod: want a file with a Pod manifest, or - for standard input")}
			}
			p, err := readPod(podFile, env.Stdin)
			if err != nil {
				return err
			}
			requests := p.requests(sandbox)
			if only != "" {
				requests = slices.DeleteFunc(requests, func(r *resolve.Request) bool { return r.Container != only })
				if len(requests) == 0 {
					return fmt.Errorf("pod %q has no container %q: %w", p.Metadata.Name, only, errdefs.ErrNotFound)
				}
			}
			engine, _, err := n.open(env)
			if err != nil {
				return err
			}
			defer engine.Close()
			all := make([]explanation, 0, len(requests))
			for _, r := range requests {
				plan, err := engine.Explain(cmd.Context(), r)
				x := explanation{Container: r.Name(), Created: err == nil, Requests: plan.Items, Edits: plan.Set}
				if err != nil {
					x.Error = err.Error()
				}
				all = append(all, x)
			}
			if err := printExplanations(env.Stdout, format, all); err != nil {
				return err
			}
			if slices.ContainsFunc(all, func(x explanation) bool { return !x.Created }) {
				return errAnswerNo
			}
			return nil
		},
	}
	n.flags(cmd)
	cmd.Flags().StringVar(&podFile, "pod", "", "`file` with the Pod manifest, - for standard input")
	cmd.Flags().StringVar(&only, "container", "", "only the container of this `name`")
	cmd.Flags().StringVar(&sandbox, "sandbox-id", "", "`ID` of the pod's sandbox, by which its network attachments are found")
	outputFlag(cmd, &format)
	return cmd
}

func printExplanations(w io.Writer, format string, all []explanation) error {
	if format == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return enc.Encode(all)
	}
	var b strings.Builder
	for i, x := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		x.text(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (x *explanation) text(b *strings.Builder) {
	fmt.Fprintf(b, "container %s: ", x.Container)
	switch {
	case !x.Created:
		b.WriteString("would be refused\n")
	case len(x.Requests) == 0:
		b.WriteString("asks for nothing, and is left as it is\n")
		return
	default:
		b.WriteString("would be created\n")
	}
	shown := false
	for _, it := range x.Requests {
		shown = shown || it.Outcome == resolve.Failed || it.Outcome == resolve.Refused
		fmt.Fprintf(b, "\n  %s: %s\n", it.Request, it.Outcome)
		if it.Reason != "" {
			line(b, "why", strings.ReplaceAll(it.Reason, "\n", "\n            "))
		}
		line(b, "from", it.From)
		if it.File != it.From {
			line(b, "file", it.File)
		}
		line(b, "rule", it.Rule)
		line(b, "audit", it.Audit)
		for _, n := range it.Notes {
			line(b, "note", n)
		}
		for _, e := range describe(&x.Edits, func(o edits.Origin) bool { return o.Request == it.Request }) {
			line(b, e.kind, e.text)
		}
	}
	if !x.Created && !shown {
		line(b, "why", x.Error)
	}
	if rest := describe(&x.Edits, func(o edits.Origin) bool { return o.Source == edits.View }); len(rest) > 0 {
		b.WriteString("\n  and the container's view of them\n")
		for _, e := range rest {
			line(b, e.kind, e.text)
		}
	}
}

func line(b *strings.Builder, name, value string) {
	if value != "" {
		fmt.Fprintf(b, "    %-7s %s\n", name, value)
	}
}

// described is one edit for a person.
type described struct{ kind, text string }

// describe lists the edits whose origin is wanted.
func describe(s *edits.Set, want func(edits.Origin) bool) []described {
	var out []described
	add := func(o edits.Origin, kind, format string, args ...any) {
		if want(o) {
			out = append(out, described{kind, fmt.Sprintf(format, args...)})
		}
	}
	for _, d := range s.Devices {
		from := ""
		if d.HostPath != "" && d.HostPath != d.Path {
			from = " from " + d.HostPath
		}
		add(d.Origin, "device", "%s (%s %d:%d)%s", d.Path, d.Type, d.Major, d.Minor, from)
	}
	for _, m := range s.Mounts {
		add(m.Origin, "mount", "%s from %s (%s)", m.Destination, m.Source, strings.Join(m.Options, ","))
	}
	for _, e := range s.Env {
		add(e.Origin, "env", "%s=%s", e.Name, e.Value)
	}
	for _, h := range s.Hooks {
		add(h.Origin, "hook", "%s %s", h.Stage, h.Path)
	}
	for _, n := range s.NetDevices {
		add(n.Origin, "netdev", "%s as %s", n.HostName, n.Name)
	}
	for _, g := range s.GIDs {
		add(g.Origin, "group", "%d", g.ID)
	}
	if s.RDT != nil {
		add(s.RDT.Origin, "rdt", "class %q", s.RDT.ClosID)
	}
	return out
}
