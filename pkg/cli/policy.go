// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/policy"
)

func policyCommand(env Env) *cobra.Command {
	return group(&cobra.Command{
		Use:   "policy",
		Short: "Ask the policy, and test it",
	}, policyCheckCommand(env), policyTestCommand(env))
}

// asks are things to ask a policy about, by kind.
type asks struct {
	CDI      []string   `json:"cdi"`
	Devices  []string   `json:"devices"`
	Sockets  []string   `json:"sockets"`
	Mounts   []askMount `json:"mounts"`
	Hooks    []string   `json:"hooks"`
	Networks []string   `json:"networks"`
}

type askMount struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	ReadOnly    bool   `json:"readOnly"`
}

func (m askMount) String() string {
	s := m.Source + ":" + m.Destination
	if m.ReadOnly {
		s += ":ro"
	}
	return s
}

func (a *asks) empty() bool {
	return len(a.CDI)+len(a.Devices)+len(a.Sockets)+len(a.Mounts)+len(a.Hooks)+len(a.Networks) == 0
}

// decision is what the policy says of one thing.
type decision struct {
	Kind    string `json:"kind"` // as in a rule's allow: cdi, devices, sockets, mounts, hooks, networks, limits
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Rule    string `json:"rule,omitempty"`    // that grants or denies it, or came closest
	Message string `json:"message,omitempty"` // the refusal
}

// The outcomes of a decision, which are what a case wants, too.
const (
	granted = "granted"
	audited = "audited" // granted, and only audit mode does
	refused = "refused"
)

// put asks the policy about each.
func (a *asks) put(p *policy.Policy, s policy.Subject) []decision {
	var all []decision
	each := func(kind string, names []string, ask func(policy.Subject, string) (policy.Grant, error)) {
		for _, name := range names {
			grant, err := ask(s, name)
			all = append(all, decided(kind, name, grant, err))
		}
	}
	each("cdi", a.CDI, p.CDI)
	each("devices", a.Devices, p.Device)
	each("sockets", a.Sockets, p.Socket)
	for _, m := range a.Mounts {
		grant, err := p.Mount(s, m.Source, m.Destination, m.ReadOnly)
		all = append(all, decided("mounts", m.String(), grant, err))
	}
	each("hooks", a.Hooks, p.Hook)
	each("networks", a.Networks, p.Network)
	return all
}

func decided(kind, name string, g policy.Grant, err error) decision {
	d := decision{Kind: kind, Name: name, Outcome: granted, Rule: g.Rule}
	var r *policy.RefusedError
	switch {
	case errors.As(err, &r):
		d.Outcome, d.Rule, d.Message = refused, r.Rule, r.Error()
	case g.Audited:
		d.Outcome, d.Message = audited, g.Refusal.Error()
	}
	return d
}

// limited is the decision about how much a container gets.
func limited(p *policy.Policy, s policy.Subject, count, others policy.Usage) decision {
	d := decision{Kind: "limits", Name: "what the container gets", Outcome: granted}
	no, trial := p.Limit(s, count, others)
	err := no
	if err == nil {
		err = trial
	}
	var l *policy.LimitError
	if errors.As(err, &l) {
		d.Name, d.Rule, d.Message, d.Outcome = l.Field, l.Rule, l.Error(), refused
		if no == nil {
			d.Outcome = audited
		}
	}
	return d
}

// write is the decision for a person, indented by two.
func (d *decision) write(b *strings.Builder) {
	b.WriteString("  " + d.Kind + " " + plain(d.Name) + ": " + d.Outcome)
	if d.Outcome != refused && d.Rule != "" {
		b.WriteString(" by rule " + plain(d.Rule))
	}
	b.WriteByte('\n')
	if d.Message != "" {
		b.WriteString("    " + strings.ReplaceAll(plainLines(d.Message), "\n", "\n    ") + "\n")
	}
}
