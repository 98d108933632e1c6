// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/reserved"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/policy"
)

func policyCommand(env Env) *cobra.Command {
	return commandGroup(&cobra.Command{
		Use:   "policy",
		Short: "Check requests against the policy, test it, and suggest rules",
	}, policyCheckCommand(env), policySuggestCommand(env), policyTestCommand(env))
}

// nodePolicy is the policy of a configuration.
type nodePolicy struct {
	*policy.Policy
	cfg *config.Config
}

func (n *hostFlags) loadPolicy(cmd *cobra.Command) (nodePolicy, error) {
	local, err := n.openNode(cmd)
	if err != nil {
		return nodePolicy{}, err
	}
	p, err := local.cfg.CompilePolicy("")
	return nodePolicy{p, local.cfg}, err
}

// query is what a policy is asked about, by kind.
type query struct {
	CDI      []string     `json:"cdi"`
	Devices  []string     `json:"devices"`
	Sockets  []string     `json:"sockets"`
	Mounts   []mountQuery `json:"mounts"`
	Hooks    []string     `json:"hooks"`
	Networks []string     `json:"networks"`
	Ports    []portQuery  `json:"ports"`
	// NamedSockets are names of sockets.named. A name that the configuration does not have has no path.
	NamedSockets []string `json:"namedSockets"`
}

type mountQuery policy.Mount

func (m mountQuery) String() string {
	s := m.Source + ":" + m.Destination
	if m.ReadOnly {
		s += ":ro"
	}
	return s
}

// portQuery is a port of a vswitch, written vswitch/bridge[:VLAN].
type portQuery policy.Port

func (q portQuery) String() string {
	s := q.Switch + "/" + q.Bridge
	if q.VLAN != 0 {
		s += ":" + strconv.Itoa(q.VLAN)
	}
	return s
}

// UnmarshalText parses a port. The policy checks the names and the number.
func (q *portQuery) UnmarshalText(text []byte) error {
	port, vlan, tagged := strings.Cut(string(text), ":")
	vswitch, bridge, ok := strings.Cut(port, "/")
	number, err := strconv.Atoi(vlan)
	if !ok || tagged && err != nil {
		return fmt.Errorf("found %q, want VSWITCH/BRIDGE or VSWITCH/BRIDGE:VLAN", text)
	}
	*q = portQuery{Switch: vswitch, Bridge: bridge, VLAN: number}
	return nil
}

func (a *query) isEmpty() bool {
	return len(a.CDI)+len(a.Devices)+len(a.Sockets)+len(a.Mounts)+len(a.Hooks)+len(a.Networks)+len(a.Ports)+len(a.NamedSockets) == 0
}

// decision is the answer of a policy about one thing.
type decision struct {
	Kind    string `json:"kind"` // as in a rule's allow: cdi, devices, sockets, namedSockets, mounts, hooks, networks, ports, limits
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Rule    string `json:"rule,omitempty"`    // that grants or denies it, or came closest
	Message string `json:"message,omitempty"` // the refusal
}

// The outcomes of a decision. A test case expects one of them.
const (
	granted = "granted"
	audited = "audited" // granted, and only audit mode does
	refused = "refused"
)

// evaluate asks the policy about each thing of the query.
func (a *query) evaluate(p nodePolicy, s policy.Subject) []decision {
	var all []decision
	each := func(kind string, names []string, ask func(policy.Subject, string) (policy.Grant, error)) {
		for _, name := range names {
			grant, err := ask(s, name)
			all = append(all, newDecision(kind, name, grant, err))
		}
	}
	each("cdi", a.CDI, p.CDI)
	each("devices", a.Devices, p.Device)
	each("sockets", a.Sockets, func(s policy.Subject, path string) (policy.Grant, error) {
		return p.SocketAt(s, socketPath(path))
	})
	each("namedSockets", a.NamedSockets, func(s policy.Subject, name string) (policy.Grant, error) {
		return p.NamedSocket(s, name, socketPath(p.cfg.Sockets.Named[name].Path))
	})
	for _, m := range a.Mounts {
		grant, err := p.Mount(s, m.Source, m.Destination, m.ReadOnly)
		all = append(all, newDecision("mounts", m.String(), grant, err))
	}
	each("hooks", a.Hooks, p.Hook)
	each("networks", a.Networks, p.Network)
	for _, port := range a.Ports {
		grant, err := p.Port(s, policy.Port(port))
		all = append(all, newDecision("ports", port.String(), grant, err))
	}
	return all
}

// socketPath returns the path of a socket as on a host whose /var/run is a symlink to /run, as on most: what a rule denies
// below one of them, it denies below the other.
func socketPath(path string) policy.SocketPath {
	at := policy.SocketPath{Path: path}
	switch short := reserved.WithoutVar(path); {
	case short != path:
		at.Aliases = []string{short}
	case strings.HasPrefix(path, "/run/"):
		at.Aliases = []string{"/var" + path}
	}
	return at
}

func newDecision(kind, name string, g policy.Grant, err error) decision {
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

// decideLimits returns the decision about how much a container gets.
func decideLimits(p nodePolicy, s policy.Subject, count, others policy.Usage) decision {
	d := decision{Kind: "limits", Name: "what the container gets", Outcome: granted}
	no, trial := p.Limit(s, count, others)
	var l *policy.LimitError
	switch {
	case errors.As(no, &l):
		d.Outcome = refused
	case errors.As(trial, &l):
		d.Outcome = audited
	default:
		return d
	}
	d.Name, d.Rule, d.Message = l.Field, l.Rule, l.Error()
	return d
}

// writeDecision writes the decision for a person, indented by two.
func (d *decision) writeDecision(b *strings.Builder) {
	b.WriteString("  " + d.Kind + " " + plain(d.Name) + ": " + colored(stateColor(d.Outcome), d.Outcome))
	if d.Outcome != refused && d.Rule != "" {
		b.WriteString(" by rule " + plain(d.Rule))
	}
	b.WriteByte('\n')
	if d.Message != "" {
		b.WriteString("    " + strings.ReplaceAll(plainLines(d.Message), "\n", "\n    ") + "\n")
	}
}
