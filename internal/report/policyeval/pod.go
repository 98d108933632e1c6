// SPDX-License-Identifier: Apache-2.0

package policyeval

import (
	"errors"
	"slices"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/manifest"
)

// PodQuery is a question to a policy about the containers of a pod.
type PodQuery struct {
	Container string // only this one; "" for all
	Network   string // that brings the sockets and devices of More; "" for none
	More      Query  // beside the requests of the annotations and networks of each container
	// Count is the usage of each container. Without it the requests are counted.
	Count *policy.Usage
	// PodHas is the usage of further containers of the pod.
	PodHas policy.Usage
}

// ContainerDecisions are the decisions about one container. Err is why the node refuses it whatever the policy is.
type ContainerDecisions struct {
	Container string // NAMESPACE/POD/CONTAINER
	Decisions []Decision
	Err       error
}

// EvaluatePod returns the decisions about the requests in the annotations and networks of a pod's containers. Limits of
// the pod count the containers that run when the next one is created. Only the node knows the devices that the kubelet
// allocates.
func (p *Policy) EvaluatePod(objects *manifest.Objects, pod *manifest.Pod, q PodQuery) []ContainerDecisions {
	var all []ContainerDecisions
	others := q.PodHas
	for _, r := range pod.Requests("", "") {
		c := ContainerDecisions{Container: r.Name(), Decisions: []Decision{}}
		named, err := p.annotationQuery(r)
		if c.Err = err; err == nil {
			s := engine.Subject(r)
			c.Decisions = p.Evaluate(&named, s)
			for _, port := range objects.Ports(r, p.Config) {
				c.Decisions = append(c.Decisions, p.evaluatePort(&port, s))
				if port.Err == nil {
					named.Ports = append(named.Ports, port.Port)
				}
			}
			s.Network = q.Network
			c.Decisions = append(c.Decisions, p.Evaluate(&q.More, s)...)
			usage := named.usage().Add(q.More.usage())
			c.Decisions = append(c.Decisions, p.evaluateLimits(s, usage, q.Count, others)...)
			isRefused := slices.ContainsFunc(c.Decisions, func(d Decision) bool { return d.Outcome == Refused })
			if q.Count == nil && !isRefused && !pod.EndsBeforeOthers(r.Container) {
				usage.Ports = 0 // they are the pod's, and counted with each container
				others = others.Add(usage)
			}
		}
		if q.Container == "" || q.Container == r.Container {
			all = append(all, c)
		}
	}
	for _, m := range pod.MissingContainers(p.Config) {
		all = append(all, ContainerDecisions{Container: m.Name, Decisions: []Decision{}, Err: errors.New(m.Problem)})
	}
	return all
}

// EvaluateSubject returns the decisions about a query for a container that no manifest describes.
func (p *Policy) EvaluateSubject(s policy.Subject, q PodQuery) []Decision {
	return append(p.Evaluate(&q.More, s), p.evaluateLimits(s, q.More.usage(), q.Count, q.PodHas)...)
}

// evaluatePort returns the decision about a port that a network of a manifest asks for.
func (p *Policy) evaluatePort(port *manifest.NetworkPort, s policy.Subject) Decision {
	if port.Err != nil {
		return Decision{Kind: "ports", Name: port.Name(), Outcome: Refused, Message: diag.ErrorText(port.Err)}
	}
	grant, err := p.Port(s, port.Port)
	return newDecision("ports", port.Name(), grant, err)
}

// usage returns how much the query asks for.
func (q *Query) usage() policy.Usage {
	different := map[string]bool{}
	for _, name := range q.CDI {
		different[name] = true
	}
	return policy.Usage{CDI: len(different), Devices: len(q.Devices), Sockets: len(q.Sockets) + len(q.NamedSockets),
		Mounts: len(q.Mounts), Hooks: len(q.Hooks), Ports: len(q.Ports)}
}

// evaluateLimits returns the decisions about how much a container gets beside the other containers of its pod:
// those that are not granted, or else one if the caller gives the count.
func (p *Policy) evaluateLimits(s policy.Subject, asked policy.Usage, count *policy.Usage,
	others policy.Usage) []Decision {
	if count != nil {
		ports := asked.Ports
		asked = *count
		asked.Ports = max(asked.Ports, ports)
	}
	var all []Decision
	add := func(refusal, trial error) {
		var l *policy.LimitError
		switch {
		case errors.As(refusal, &l):
			all = append(all, Decision{Kind: "limits", Name: l.Field, Outcome: Refused, Rule: l.Rule, Message: l.Error()})
		case errors.As(trial, &l):
			all = append(all, Decision{Kind: "limits", Name: l.Field, Outcome: Audited, Rule: l.Rule, Message: l.Error()})
		}
	}
	ports, otherPorts := asked.Ports, others.Ports
	asked.Ports, others.Ports = 0, 0
	add(p.Limit(s, asked, others))
	if ports > 0 {
		add(p.LimitPorts(s, otherPorts+ports-1))
	}
	if len(all) == 0 && count != nil {
		all = append(all, Decision{Kind: "limits", Name: "what the container gets", Outcome: Granted})
	}
	return all
}
