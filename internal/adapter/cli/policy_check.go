// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/config/policy"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/manifest"
	"github.com/jackfield/jackfield/internal/report/policyeval"
)

const policyCheckLong = `check asks the policy about the CDI devices, named sockets and networks that a pod's
annotations name, and compares their number with the limits. It reads nothing of the
node but its configuration, so that a manifest can be checked anywhere; explain
does the rest on the node. If FILE holds the NetworkAttachmentDefinitions of the
pod's networks, check also asks about the ports that they name. policy test finds the
same for a manifest. check asks about vendor.com/class=all under this name, and explain
about each device for which it stands on the node.

--mount type=TYPE:DESTINATION asks about a file system that is no bind mount.

FILE holds Pods, workloads (each pod template is checked), Lists of them, or
several of these as YAML documents; - is standard input. Of a directory, every
*.yaml, *.yml and *.json file is read, and no directory below it. The flags add to
what the annotations name. Without FILE, check asks about what the flags name, for
the container that the flags describe.

The exit status is 1 when something is refused.`

// policyCheck are the flags and arguments of policy check.
type policyCheck struct {
	manifestFlags
	subject policy.Subject
	labels  []string
	query   policyeval.Query
	mounts  []string
	ports   []string
}

func policyCheckCommand(env Env) *cobra.Command {
	var (
		n   hostFlags
		out output
		q   = policyCheck{subject: policy.Subject{Labels: map[string]string{}}}
	)
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Check a pod's requests against the policy",
		Long:  policyCheckLong,
		Example: "  jackfield policy check deployment.yaml --config config.yaml\n" +
			"  jackfield policy check -n telco \\\n" +
			"      --socket /var/run/vsw/a/a.sock --from-network telco/east",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := q.checkFlags(cmd, args); err != nil {
				return err
			}
			p, err := n.loadPolicy(cmd)
			if err != nil {
				return err
			}
			return q.checkQuery(cmd, env, out, p)
		},
	}
	n.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&q.container, "container", "", "the container's `name`; with a manifest, only this one")
	addNamespaceFlag(cmd, &q.namespace, "the pod (default: the manifest's, or none for a container outside of Kubernetes)")
	f.StringArrayVar(&q.labels, "label", nil, "a label of the pod, `KEY=VALUE`")
	f.StringVar(&q.subject.RuntimeHandler, "runtime-class", "", "the pod's runtime `handler`")
	f.StringVar(&q.subject.Image, "image", "", "the container's `image`")
	f.StringVar(&q.subject.Network, "from-network", "", "the network that brings devices and sockets, `NAMESPACE/NAME`")
	f.StringArrayVar(&q.query.CDI, "cdi", nil, "ask about a CDI `device`")
	f.StringArrayVar(&q.query.Devices, "device", nil, "ask about the device node at a `path` of the host")
	f.StringArrayVar(&q.query.Sockets, "socket", nil, "ask about the socket at a `path` of the host")
	f.StringArrayVar(&q.query.NamedSockets, "named-socket", nil, "ask about the socket with a `name` in the configuration")
	f.StringArrayVar(&q.mounts, "mount", nil, "ask about a mount, `SOURCE:DESTINATION[:ro]`")
	f.StringArrayVar(&q.query.Hooks, "hook", nil, "ask about a hook's `program`")
	f.StringArrayVar(&q.query.Networks, "network", nil, "ask about a `network`, NAMESPACE/NAME")
	f.StringArrayVar(&q.ports, "port", nil, "ask about a port of a vswitch, `VSWITCH/BRIDGE[:VLAN]`")
	completeFlag(cmd, "cdi", n.completeDevices(env))
	completeFlag(cmd, "named-socket", n.completeNamedSockets)
	out.addFlag(cmd)
	return cmd
}

func (q *policyCheck) checkFlags(cmd *cobra.Command, args []string) error {
	if err := q.manifestFlags.checkFlags(cmd, args); err != nil {
		return err
	}
	if err := q.query.CheckNames(); err != nil {
		return usagef(cmd, "%w", err)
	}
	for _, m := range q.mounts {
		parts := strings.Split(m, ":")
		if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" {
			return usagef(cmd, "--mount: invalid value %q: must be SOURCE:DESTINATION or SOURCE:DESTINATION:ro; type=TYPE in "+
				"place of SOURCE for a file system that is no bind mount", m)
		}
		mount := policy.Mount{Source: parts[0], Destination: parts[1], ReadOnly: len(parts) == 3}
		if fsType, ok := strings.CutPrefix(parts[0], "type="); ok {
			mount.Type, mount.Source = fsType, ""
		}
		q.query.Mounts = append(q.query.Mounts, mount)
	}
	for _, p := range q.ports {
		var port policy.Port
		if err := port.UnmarshalText([]byte(p)); err != nil {
			return usagef(cmd, "--port: %v", err)
		}
		q.query.Ports = append(q.query.Ports, port)
	}
	for _, l := range q.labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" {
			return usagef(cmd, "--label: invalid value %q: must be KEY=VALUE", l)
		}
		q.subject.Labels[key] = value
	}
	if len(q.files) > 0 && (q.labels != nil || q.subject.RuntimeHandler != "" || q.subject.Image != "") {
		return usagef(cmd, "--label, --runtime-class and --image describe a container; with a manifest, the manifest does")
	}
	if len(q.files) == 0 && q.query.IsEmpty() {
		return usagef(cmd, "nothing to ask about: name a file with pods, or give one of --cdi, --device, --socket, "+
			"--named-socket, --mount, --hook, --network, --port")
	}
	return nil
}

// containerDecisions are the decisions of the policy about one container.
type containerDecisions struct {
	place
	Container string                `json:"container"`
	Error     string                `json:"error,omitempty"`
	Decisions []policyeval.Decision `json:"decisions"`
	Warnings  []string              `json:"warnings,omitempty"` // about the pod's annotations

	title string // for people
}

func (q *policyCheck) checkQuery(cmd *cobra.Command, env Env, out output, p *policyeval.Policy) error {
	var all []containerDecisions
	if len(q.files) == 0 {
		q.subject.Namespace, q.subject.Container = q.namespace, q.container
		name := (&engine.Request{Namespace: q.namespace, Container: q.container}).Name()
		all = append(all, containerDecisions{Container: name, title: q.title(),
			Decisions: p.EvaluateSubject(q.subject, policyeval.PodQuery{More: q.query})})
	} else {
		if err := q.readPods(cmd, env); err != nil {
			return err
		}
		for _, pod := range q.Pods {
			all = append(all, q.checkPod(env, p, pod)...)
		}
	}
	no := slices.ContainsFunc(all, func(c containerDecisions) bool {
		return c.Error != "" || slices.ContainsFunc(c.Decisions,
			func(d policyeval.Decision) bool { return d.Outcome == policyeval.Refused })
	})
	return answerError(out.writeResult(env, all, func() string { return checkedText(all) }), no, q.unread > 0)
}

// title names the container that the flags describe.
func (q *policyCheck) title() string {
	switch {
	case q.namespace == "" && q.container == "":
		return "Container outside of Kubernetes"
	case q.namespace == "":
		return "Container " + q.container + ", outside of Kubernetes"
	case q.container == "":
		return "Namespace " + q.namespace
	}
	return "Namespace " + q.namespace + ", Container " + q.container
}

// checkPod evaluates the query of each container of a pod.
func (q *policyCheck) checkPod(env Env, p *policyeval.Policy, pod *manifest.Pod) []containerDecisions {
	warnings := printWarnings(env, p.Config, pod)
	var all []containerDecisions
	query := policyeval.PodQuery{Container: q.container, Network: q.subject.Network, More: q.query}
	for _, evaluated := range p.EvaluatePod(&q.Objects, pod, query) {
		c := containerDecisions{Container: evaluated.Container, Decisions: evaluated.Decisions}
		if evaluated.Err != nil {
			c.Error = diag.ErrorText(evaluated.Err)
		}
		all = append(all, c)
	}
	for i := range all {
		all[i].place, all[i].title, all[i].Warnings = placeOf(pod), "Container "+all[i].Container, warnings
	}
	return all
}

func checkedText(all []containerDecisions) string {
	var b strings.Builder
	var previous place
	for i := range all {
		c := &all[i]
		b.WriteString(c.place.heading(previous) + plain(c.title) + "\n")
		previous = c.place
		if c.Error != "" {
			b.WriteString("  " + plain(c.Error) + "\n")
		} else if len(c.Decisions) == 0 {
			b.WriteString("  requests nothing by name\n")
		}
		for j := range c.Decisions {
			writeDecision(&b, &c.Decisions[j])
		}
	}
	return b.String()
}

// writeDecision writes a decision for a person, indented by two.
func writeDecision(b *strings.Builder, d *policyeval.Decision) {
	outcome := string(d.Outcome)
	b.WriteString("  " + d.Kind + " " + plain(d.Name) + ": " + colored(stateColor(outcome), outcome))
	if d.Outcome != policyeval.Refused && d.Rule != "" {
		b.WriteString(" by rule " + plain(d.Rule))
	}
	b.WriteByte('\n')
	if d.Message != "" {
		b.WriteString("    " + strings.ReplaceAll(plainLines(d.Message), "\n", "\n    ") + "\n")
	}
}
