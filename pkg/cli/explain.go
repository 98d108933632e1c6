// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	nriapply "github.com/jackfield/jackfield/pkg/apply/nri"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/wording"
)

// explanation is what explain prints of one container.
type explanation struct {
	Workload  string  `json:"workload,omitempty"` // whose pod template it is, KIND NAMESPACE/NAME; "" for a Pod
	Container string  `json:"container"`
	Verdict   verdict `json:"verdict"`
	// Created is null where not everything was checked.
	Created  *bool          `json:"created"`
	Error    string         `json:"error,omitempty"`
	Requests []resolve.Item `json:"requests"`
	// NotChecked are requests that could not be resolved, and what is needed for that.
	NotChecked []resolve.Item `json:"notChecked,omitempty"`
	Warnings   []string       `json:"warnings,omitempty"` // about the pod's annotations
	Edits      edits.Set      `json:"edits"`
	// View is what the container would find in devices.json; absent where it has
	// no attachment.
	View json.RawMessage `json:"view,omitempty"`

	missing  bool     // the pod does not have the container, which an annotation names
	problems []string // what Error joins, less what is the reason of a request
}

// verdict says what would become of a container.
type verdict string

const (
	verdictCreated    verdict = "created"
	verdictRefused    verdict = "refused"
	verdictIncomplete verdict = "incomplete" // nothing refuses it, but not everything was checked
)

// decide sets the verdict.
func (x *explanation) decide() {
	created := x.Error == ""
	switch {
	case !created:
		x.Verdict = verdictRefused
	case len(x.NotChecked) > 0:
		x.Verdict = verdictIncomplete
		return
	default:
		x.Verdict = verdictCreated
	}
	x.Created = &created
}

const explainLong = `explain resolves the requests of pods on this node as the NRI plugin would,
changes nothing, and prints for each container what would be injected, from which
file, by which policy rule, or why not. A refusal comes with the lines to add to
the configuration.

FILE holds Pods, workloads (each pod template is explained), Lists of them, or
several of these as YAML documents; - is standard input.

Network attachments are found by the ID of the pod's sandbox, or by how it begins.
Without --sandbox-id the networks that a pod names are not checked, and explain
says so. What the kubelet allocated to a container, only the kubelet of its node
knows, which is asked where policy lets devices come.

The exit status is 0 when every container would be created, 1 when one would be
refused, and 3 when none would be refused but not everything could be checked.

Without FILE, and with the ID of a sandbox or container of this node, explain
shows what is on record: the device-info of the sandbox, and what its containers
were given. It does not ask the container runtime.`

func explainCommand(env Env) *cobra.Command {
	var (
		n   node
		out output
		q   question
	)
	cmd := &cobra.Command{
		Use:   "explain {FILE... | --sandbox-id ID | --container-id ID}",
		Short: "Tell what a pod's containers would get here, from which file, by which rule, or why not",
		Long:  explainLong,
		Example: "  jackfield explain pod.yaml\n" +
			"  jackfield explain -f deployment.yaml -n telco\n" +
			"  kubectl get pod NAME -o yaml | jackfield explain - --sandbox-id ID --container app\n" +
			"  jackfield explain --sandbox-id ID",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			if err := q.check(cmd, args); err != nil {
				return err
			}
			if len(q.files) == 0 {
				return n.explainRunning(cmd, env, out, q)
			}
			return n.explainPods(cmd, env, out, q)
		},
	}
	n.flags(cmd)
	q.podFlags(cmd)
	cmd.Flags().StringVarP(&q.namespace, "namespace", "n", "", "the `namespace` of pods that name none (default \"default\")")
	cmd.Flags().StringVar(&q.container, "container", "", "only the container of this `name` in the manifest")
	cmd.Flags().StringVar(&q.sandboxID, "sandbox-id", "", "`ID` of the pod's sandbox, by which its network attachments are found")
	cmd.Flags().StringVar(&q.containerID, "container-id", "", "`ID` of a container of this node")
	out.flag(cmd)
	return cmd
}

// question is whom explain is asked about.
type question struct {
	manifests
	container, sandboxID, containerID string
}

func (q *question) check(cmd *cobra.Command, args []string) error {
	if err := q.manifests.check(cmd, args); err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("sandbox-id") && q.sandboxID == "":
		return usagef(cmd, "--sandbox-id: the ID is empty")
	case len(q.files) == 0 && q.sandboxID == "" && q.containerID == "":
		return usagef(cmd, "want a file with pods (- for standard input), --sandbox-id or --container-id")
	case len(q.files) > 0 && q.containerID != "":
		return usagef(cmd, "a manifest and --container-id do not go together; --container names a container of the manifest")
	case len(q.files) == 0 && q.container != "":
		return usagef(cmd, "--container names a container of a manifest: name its file")
	case len(q.files) == 0 && q.namespace != "":
		return usagef(cmd, "--namespace is for a manifest: name its file")
	}
	return nil
}

func (n *node) explainPods(cmd *cobra.Command, env Env, out output, q question) error {
	pods, err := q.read(cmd, env)
	if err != nil {
		return err
	}
	if err := checkContainer(pods, q.container); err != nil {
		return err
	}
	if q.sandboxID != "" && len(pods) > 1 {
		return usagef(cmd, "--sandbox-id is of one pod; found %d pods in %s", len(pods), strings.Join(q.files, ", "))
	}
	engine, host, cfg, err := n.engine(cmd, env)
	if err != nil {
		return err
	}
	if q.sandboxID, err = findSandbox(env, host, cfg, q.sandboxID); err != nil {
		return errors.Join(err, engine.Close())
	}
	all := []explanation{}
	for _, p := range pods {
		all = append(all, explainPod(cmd.Context(), env, engine, host, cfg, p, q)...)
	}
	if err := engine.Close(); err != nil {
		return err
	}
	err = out.write(env.Stdout, all, func(w io.Writer) error { return printExplanations(w, cfg, all) })
	has := func(v verdict) bool {
		return slices.ContainsFunc(all, func(x explanation) bool { return x.Verdict == v })
	}
	if err == nil && !has(verdictRefused) && has(verdictIncomplete) {
		return errNoAnswer
	}
	return answer(err, !has(verdictRefused))
}

// checkContainer is an error where no pod has a container of the name.
func checkContainer(pods []*pod, name string) error {
	if name == "" {
		return nil
	}
	var names []string
	for _, p := range pods {
		for _, have := range p.containerNames() {
			if have == name {
				return nil
			}
			if !slices.Contains(names, have) {
				names = append(names, have)
			}
		}
	}
	text := fmt.Sprintf("%s has no container %s, but %s", pods[0].title(), quoted(name), strings.Join(names, ", "))
	if len(pods) > 1 {
		text = fmt.Sprintf("no pod has a container %s; they have %s", quoted(name), strings.Join(names, ", "))
	}
	if near := wording.Nearest(name, names...); near != "" {
		text += "; did you mean " + near + "?"
	}
	return fmt.Errorf("%s: %w", text, errdefs.ErrNotFound)
}

// explainPod explains the containers of a pod, all or the one that was asked about.
func explainPod(ctx context.Context, env Env, engine *resolve.Engine, host hostfs.Root, cfg *config.Config, p *pod, q question) []explanation {
	warnings := p.warn(env, cfg)
	var all []explanation
	for _, r := range p.requests(q.sandboxID) {
		if q.container != "" && q.container != r.Container {
			continue
		}
		var notChecked []resolve.Item
		if q.sandboxID == "" {
			notChecked = uncheckedNetworks(r, engine.Policy())
		}
		r.Carries, r.FromManifest = carries, true
		plan, err := engine.Explain(ctx, r)
		if err == nil {
			err = undeliverable(r, plan)
		}
		x := explain(host, r, plan, err)
		x.Requests, x.NotChecked = splitNotChecked(x.Requests, notChecked)
		x.Workload, x.Warnings = p.workload(), warnings
		x.decide()
		all = append(all, x)
	}
	for _, m := range p.missingContainers(cfg) {
		x := explanation{Workload: p.workload(), Container: p.Metadata.Namespace + "/" + p.Metadata.Name + "/" + m.name,
			Error: m.problem, missing: true, problems: []string{m.problem}, Requests: []resolve.Item{}, Warnings: warnings}
		x.decide()
		all = append(all, x)
	}
	return all
}

// splitNotChecked parts the requests that were not checked from the others, and puts them before the networks, which were not checked either.
func splitNotChecked(items, networks []resolve.Item) (checked, notChecked []resolve.Item) {
	checked = []resolve.Item{}
	for _, it := range items {
		if it.Outcome == resolve.NotChecked {
			notChecked = append(notChecked, it)
		} else {
			checked = append(checked, it)
		}
	}
	return checked, append(notChecked, networks...)
}

// carries tells what no version of NRI can deliver. What the node's own cannot is
// told by the doctor, and by the plugin.
func carries(set *edits.Set, request string) error {
	return nriapply.Carries(set, nriapply.Capabilities{DeviceRules: true, NetDevices: true, RDT: true, Validate: true}, request)
}

// undeliverable is what keeps the plugin from delivering a plan, written to the
// request that asks for it.
func undeliverable(r *resolve.Request, plan *resolve.Plan) error {
	var errs []error
	for i := range plan.Items {
		it := &plan.Items[i]
		if it.Outcome != resolve.Injected {
			continue
		}
		if err := carries(&plan.Set, it.Request); err != nil {
			it.Outcome, it.Reason, it.Err = resolve.Failed, err.Error(), err
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	plan.Set = edits.Set{}
	return &resolve.Error{Container: r.Name(), Errs: errs, Items: plan.Items}
}

func explain(host hostfs.Root, r *resolve.Request, plan *resolve.Plan, err error) explanation {
	x := explanation{Container: r.Name(), Requests: plan.Items, Edits: plan.Set}
	if x.Requests == nil {
		x.Requests = []resolve.Item{}
	}
	for i := range x.Edits.Mounts {
		m := &x.Edits.Mounts[i]
		if m.Origin.Source != edits.CDI {
			m.Source = hostPathOf(host, m.Source)
		}
	}
	if plan.Staging != nil {
		for _, f := range plan.Staging.Files {
			if f.Name == resolve.ViewFile {
				x.View = f.Data
			}
		}
	}
	for i := range x.Requests {
		if it := &x.Requests[i]; it.Err != nil {
			it.Reason = errorText(it.Err)
		}
	}
	if err == nil {
		return x
	}
	x.Error, x.Requests = errorText(err), resolve.WithheldItems(x.Requests)
	told := map[string]bool{}
	for _, it := range x.Requests {
		if it.Err != nil {
			told[it.Err.Error()] = true
		}
	}
	problems := []error{err}
	var many *resolve.Error
	if errors.As(err, &many) {
		problems = many.Errs
	}
	for _, p := range problems {
		if !told[p.Error()] {
			x.problems = append(x.problems, errorText(p))
		}
	}
	return x
}

// hostPathOf takes the directory of --root off a path: everything else that is
// printed is a host path, too.
func hostPathOf(host hostfs.Root, p string) string {
	if dir := host.Dir(); dir != "/" {
		if rest, ok := strings.CutPrefix(p, dir+"/"); ok {
			return "/" + rest
		}
	}
	return p
}

func printExplanations(w io.Writer, cfg *config.Config, all []explanation) error {
	var b strings.Builder
	for i := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		if w := all[i].Workload; w != "" && (i == 0 || w != all[i-1].Workload) {
			b.WriteString(plain(w) + "\n\n")
		}
		t := explainText{x: &all[i], cfg: cfg, b: &b}
		t.write()
	}
	_, err := io.WriteString(w, b.String())
	return err
}
