// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"tags.cncf.io/container-device-interface/pkg/parser"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/mountopt"
	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/base/reserved"
	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/source/annotation"
)

// Policy is the compiled policy of a configuration.
type Policy struct {
	*policy.Policy
	Config *config.Config
}

// New compiles the policy of a configuration.
func New(cfg *config.Config) (*Policy, error) {
	p, err := cfg.CompilePolicy("")
	return &Policy{p, cfg}, err
}

// Query is the requests that a policy decides about, by kind. Its JSON is the "ask" of a test case.
type Query struct {
	CDI      []string       `json:"cdi"`
	Devices  []string       `json:"devices"`
	Sockets  []string       `json:"sockets"`
	Mounts   []policy.Mount `json:"mounts"`
	Hooks    []string       `json:"hooks"`
	Networks []string       `json:"networks"`
	Ports    []policy.Port  `json:"ports"`
	// NamedSockets are names of sockets.named. A name that the configuration does not have has no path.
	NamedSockets []string `json:"namedSockets"`
}

// IsEmpty reports whether nothing is asked about.
func (q *Query) IsEmpty() bool {
	return len(q.CDI)+len(q.Devices)+len(q.Sockets)+len(q.Mounts)+len(q.Hooks)+len(q.Networks)+len(q.Ports)+len(q.NamedSockets) == 0
}

// CheckNames returns an error about the first name that no CDI file and no configuration can have.
func (q *Query) CheckNames() error {
	for _, name := range q.CDI {
		if !parser.IsQualifiedName(name) {
			return fmt.Errorf("invalid CDI device name %s: must be vendor.com/class=name", diag.Quote(name))
		}
	}
	for _, network := range q.Networks {
		if namespace, base, _ := strings.Cut(network, "/"); namespace == "" || base == "" {
			return fmt.Errorf("invalid name of a network %s: must be NAMESPACE/NAME", diag.Quote(network))
		}
	}
	for _, socket := range q.NamedSockets {
		if !name.IsLabel(socket) {
			return fmt.Errorf("invalid name of a socket %s: must be 1 to 63 lower-case letters, digits and '-'",
				diag.Quote(socket))
		}
	}
	return nil
}

// Decision is the answer of a policy about one thing.
type Decision struct {
	Kind    string  `json:"kind"` // as in a rule's allow: cdi, devices, sockets, namedSockets, mounts, hooks, networks, ports, limits
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Rule    string  `json:"rule,omitempty"`    // that grants or denies it, or came closest
	Message string  `json:"message,omitempty"` // the refusal
	// Remedy grants the refused request; Message has it as text.
	Remedy *policy.Remedy `json:"remedy,omitempty"`
}

// Outcome is the outcome of a decision. A test case expects one of them.
type Outcome string

// The outcomes of decisions.
const (
	Granted Outcome = "granted"
	Audited Outcome = "audited" // granted, and only audit mode does
	Refused Outcome = "refused"
)

// Evaluate returns a decision about each thing of a query.
func (p *Policy) Evaluate(q *Query, s policy.Subject) []Decision {
	all := []Decision{}
	each := func(kind string, names []string, decide func(policy.Subject, string) (policy.Grant, error)) {
		for _, name := range names {
			grant, err := decide(s, name)
			all = append(all, newDecision(kind, name, grant, err))
		}
	}
	each("cdi", q.CDI, p.CDI)
	each("devices", q.Devices, p.Device)
	each("sockets", q.Sockets, func(s policy.Subject, path string) (policy.Grant, error) {
		return p.SocketAt(s, socketPath(path))
	})
	each("namedSockets", q.NamedSockets, func(s policy.Subject, name string) (policy.Grant, error) {
		return p.NamedSocket(s, name, socketPath(p.Config.Sockets.Named[name].Path))
	})
	for _, m := range q.Mounts {
		decide := func() (policy.Grant, error) { return p.Mount(s, m.Source, m.Destination, m.ReadOnly) }
		if m.Type != "" {
			decide = func() (policy.Grant, error) { return p.FileSystem(s, m.Type, m.Destination, m.ReadOnly) }
		}
		grant, err := decide()
		all = append(all, newDecision("mounts", m.String(), grant, err))
	}
	each("hooks", q.Hooks, p.Hook)
	each("networks", q.Networks, p.Network)
	for _, port := range q.Ports {
		grant, err := p.Port(s, port)
		all = append(all, newDecision("ports", port.String(), grant, err))
	}
	return all
}

// newDecision returns the decision about one item. In audit mode the item is granted, and the refusal is its message.
func newDecision(kind, name string, g policy.Grant, err error) Decision {
	d := Decision{Kind: kind, Name: name, Outcome: Granted, Rule: g.Rule}
	switch r, isRefused := errors.AsType[*policy.RefusedError](err); {
	case isRefused:
		d.Outcome, d.Rule, d.Message, d.Remedy = Refused, r.Rule, r.Error(), r.RemedyData()
	case g.Audited:
		d.Outcome, d.Message, d.Remedy = Audited, g.Refusal.Error(), g.Refusal.RemedyData()
	}
	return d
}

// annotationQuery returns the requests in a container's annotations.
func (p *Policy) annotationQuery(r *engine.Request) (q Query, err error) {
	wants, err := annotation.Parse(r.Annotations, r.Container)
	if err == nil {
		wants, err = wants.ExpandAliases(p.Config.CDI.Aliases)
	}
	if err != nil {
		return q, err
	}
	for _, d := range wants.Devices {
		switch d.Kind {
		case annotation.CDI:
			q.CDI = append(q.CDI, d.Name)
		case annotation.NamedSocket:
			if _, ok := p.Config.Sockets.Named[d.Name]; !ok && !d.Optional {
				return q, fmt.Errorf("annotation %s, item %d: the node's configuration names no socket %s; add it to "+
					"sockets.named: %w", d.Key, d.Position, diag.Quote(d.Name), errdefs.ErrNotFound)
			}
			q.NamedSockets = append(q.NamedSockets, d.Name)
		}
	}
	for _, n := range wants.Networks.Items {
		if n.Name == "" {
			continue // an interface: which network that is, the node knows
		}
		q.Networks = append(q.Networks, cmp.Or(n.Namespace, r.Namespace)+"/"+n.Name)
	}
	if !p.Config.Compat.DeviceInjector {
		return q, nil
	}
	in, err := annotation.ParseInjector(r.Annotations, r.Container)
	for _, n := range in.Nodes {
		q.Devices = append(q.Devices, n.Path)
	}
	for _, m := range in.Mounts {
		q.Mounts = append(q.Mounts, policy.Mount{Source: m.Source, Destination: m.Destination,
			ReadOnly: mountopt.IsReadOnly(m.Options)})
	}
	for _, d := range in.Devices {
		if !slices.Contains(q.CDI, d.Name) {
			q.CDI = append(q.CDI, d.Name)
		}
	}
	return q, err
}

// socketPath returns the path of a socket as on a host whose /var/run is a symlink to /run, as on most: a rule that
// denies a path below one of them denies it below the other.
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
