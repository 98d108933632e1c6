// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/annotation"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/policy"
	"github.com/jackfield/jackfield/pkg/resolve"
)

const policyCheckLong = `check asks the policy about what a pod's annotations name, CDI devices and
networks, and holds the number of the devices against the limits. It reads nothing
of the node but its configuration, so that a manifest can be checked anywhere;
explain does the rest, on the node.

FILE holds Pods, workloads (each pod template is checked), Lists of them, or
several of these as YAML documents; - is standard input. The flags add to what the
annotations name. Without FILE it asks about what the flags name, for the
container that the flags describe.

The exit status is 1 when something is refused.`

// checkQuestion is whom and what check is asked about.
type checkQuestion struct {
	manifests
	container string
	subject   policy.Subject
	labels    []string
	asks      asks
	mounts    []string
}

func policyCheckCommand(env Env) *cobra.Command {
	var (
		n   node
		out output
		q   checkQuestion
	)
	cmd := &cobra.Command{
		Use:   "check [FILE...]",
		Short: "Tell what the policy says of a pod's requests",
		Long:  policyCheckLong,
		Example: "  jackfield policy check deployment.yaml --config config.yaml\n" +
			"  jackfield policy check --namespace telco --socket /var/run/vsw/a/a.sock --from-network telco/east",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			if err := q.check(cmd, args); err != nil {
				return err
			}
			_, cfg, err := n.load(cmd)
			if err != nil {
				return err
			}
			return q.run(cmd, env, out, cfg)
		},
	}
	n.flags(cmd)
	f := cmd.Flags()
	q.podFlags(cmd)
	f.StringVar(&q.container, "container", "", "the container's `name`; with a manifest, only this one")
	f.StringVarP(&q.namespace, "namespace", "n", "", "the pod's `namespace`; none for a container outside of Kubernetes, or the manifest's")
	f.StringArrayVar(&q.labels, "label", nil, "a label of the pod, `KEY=VALUE`")
	f.StringVar(&q.subject.RuntimeHandler, "runtime-class", "", "the pod's runtime handler")
	f.StringVar(&q.subject.Image, "image", "", "the container's image")
	f.StringVar(&q.subject.Network, "from-network", "", "the network that brings devices and sockets, `NAMESPACE/NAME`")
	f.StringArrayVar(&q.asks.CDI, "cdi", nil, "ask about a CDI `device`")
	f.StringArrayVar(&q.asks.Devices, "device", nil, "ask about the device node at a `path` of the host")
	f.StringArrayVar(&q.asks.Sockets, "socket", nil, "ask about the socket at a `path` of the host")
	f.StringArrayVar(&q.mounts, "mount", nil, "ask about a mount, `SOURCE:DESTINATION[:ro]`")
	f.StringArrayVar(&q.asks.Hooks, "hook", nil, "ask about a hook's `program`")
	f.StringArrayVar(&q.asks.Networks, "network", nil, "ask about a `network`, NAMESPACE/NAME")
	out.flag(cmd)
	return cmd
}

func (q *checkQuestion) check(cmd *cobra.Command, args []string) error {
	if err := q.manifests.check(cmd, args); err != nil {
		return err
	}
	for _, m := range q.mounts {
		parts := strings.Split(m, ":")
		if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" {
			return usagef(cmd, "--mount: found %q, want SOURCE:DESTINATION or SOURCE:DESTINATION:ro", m)
		}
		q.asks.Mounts = append(q.asks.Mounts, askMount{parts[0], parts[1], len(parts) == 3})
	}
	for _, l := range q.labels {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" {
			return usagef(cmd, "--label: found %q, want KEY=VALUE", l)
		}
		if q.subject.Labels == nil {
			q.subject.Labels = make(map[string]string)
		}
		q.subject.Labels[key] = value
	}
	if len(q.files) > 0 && (q.labels != nil || q.subject.RuntimeHandler != "" || q.subject.Image != "") {
		return usagef(cmd, "--label, --runtime-class and --image describe a container; with a manifest, the manifest does")
	}
	if len(q.files) == 0 && q.asks.empty() {
		return usagef(cmd, "nothing to ask about: name a file with pods, or give one of --cdi, --device, --socket, --mount, --hook, --network")
	}
	return nil
}

// checked is what the policy says of one container.
type checked struct {
	Workload  string     `json:"workload,omitempty"` // whose pod template it is, KIND NAMESPACE/NAME; "" for a Pod
	Container string     `json:"container"`
	Error     string     `json:"error,omitempty"`
	Decisions []decision `json:"decisions"`
	Warnings  []string   `json:"warnings,omitempty"` // about the pod's annotations

	heading string // of a container that no manifest describes
}

func (q *checkQuestion) run(cmd *cobra.Command, env Env, out output, cfg *config.Config) error {
	p, err := resolve.Policy(cfg)
	if err != nil {
		return err
	}
	var all []checked
	if len(q.files) == 0 {
		q.subject.Namespace, q.subject.Container = q.namespace, q.container
		name := (&resolve.Request{Namespace: q.namespace, Container: q.container}).Name()
		all = append(all, checked{Container: name, heading: q.heading(), Decisions: q.asks.put(p, q.subject)})
	} else {
		pods, err := q.read(cmd, env)
		if err == nil {
			err = checkContainer(pods, q.container)
		}
		if err != nil {
			return err
		}
		for _, pod := range pods {
			all = append(all, q.pod(env, cfg, p, pod)...)
		}
	}
	no := false
	for i := range all {
		no = no || all[i].Error != ""
		for _, d := range all[i].Decisions {
			no = no || d.Outcome == refused
		}
	}
	return answer(out.write(env.Stdout, all, func(w io.Writer) error { return writeChecked(w, all) }), !no)
}

// heading says whom the flags describe.
func (q *checkQuestion) heading() string {
	var parts []string
	if q.namespace != "" {
		parts = append(parts, "Namespace "+q.namespace)
	}
	if q.container != "" {
		parts = append(parts, "Container "+q.container)
	}
	if q.namespace == "" {
		parts = append(parts, "outside of Kubernetes")
		if q.container == "" {
			return "Container outside of Kubernetes"
		}
	}
	return strings.Join(parts, ", ")
}

// pod asks about each container of a pod.
func (q *checkQuestion) pod(env Env, cfg *config.Config, p *policy.Policy, pod *pod) []checked {
	warnings := pod.warn(env, cfg)
	var all []checked
	for _, r := range pod.requests("") {
		if q.container != "" && q.container != r.Container {
			continue
		}
		c := checked{Workload: pod.workload(), Container: r.Name(), Decisions: []decision{}, Warnings: warnings}
		wants, err := podAsks(cfg, r)
		if err != nil {
			c.Error = errorText(err)
		} else {
			s := resolve.Subject(r)
			s.Network = q.subject.Network
			c.Decisions = append(wants.put(p, s), q.asks.put(p, s)...)
			// How much else it gets the node knows.
			if d := limited(p, s, policy.Usage{CDI: len(wants.CDI)}, policy.Usage{}); d.Outcome != granted {
				c.Decisions = append(c.Decisions, d)
			}
		}
		all = append(all, c)
	}
	for _, m := range pod.missingContainers(cfg) {
		all = append(all, checked{Workload: pod.workload(), Container: pod.Metadata.Namespace + "/" + pod.Metadata.Name + "/" + m.name,
			Error: m.problem, Decisions: []decision{}, Warnings: warnings})
	}
	return all
}

// podAsks is what a container's annotations name.
func podAsks(cfg *config.Config, r *resolve.Request) (asks, error) {
	var a asks
	wants, err := annotation.Parse(r.Annotations, r.Container)
	if err == nil {
		wants, err = wants.ExpandAliases(cfg.CDI.Aliases)
	}
	if err != nil {
		return a, err
	}
	for _, d := range wants.Devices {
		if d.Kind == annotation.CDI {
			a.CDI = append(a.CDI, d.Name())
		}
	}
	for _, n := range wants.Networks.Items {
		if n.Name == "" {
			continue // an interface: which network that is, the node knows
		}
		namespace := n.Namespace
		if namespace == "" {
			namespace = r.Namespace
		}
		a.Networks = append(a.Networks, namespace+"/"+n.Name)
	}
	if cfg.Compat.DeviceInjector {
		in, err := annotation.ParseInjector(r.Annotations, r.Container)
		if err != nil {
			return a, err
		}
		for _, n := range in.Nodes {
			a.Devices = append(a.Devices, n.Path)
		}
		for _, m := range in.Mounts {
			a.Mounts = append(a.Mounts, askMount{m.Source, m.Destination, resolve.ReadOnly(m.Options)})
		}
		for _, d := range in.Devices {
			if !slices.Contains(a.CDI, d.Name()) {
				a.CDI = append(a.CDI, d.Name())
			}
		}
	}
	return a, nil
}

func writeChecked(w io.Writer, all []checked) error {
	var b strings.Builder
	for i := range all {
		c := &all[i]
		heading := c.heading
		if heading == "" {
			heading = "Container " + c.Container
		}
		if c.Workload != "" && (i == 0 || c.Workload != all[i-1].Workload) {
			b.WriteString(plain(c.Workload) + "\n")
		}
		b.WriteString(plain(heading) + "\n")
		if c.Error != "" {
			b.WriteString("  " + plain(c.Error) + "\n")
		} else if len(c.Decisions) == 0 {
			b.WriteString("  asks for nothing by name\n")
		}
		for j := range c.Decisions {
			c.Decisions[j].write(&b)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
