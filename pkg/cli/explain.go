// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/devicemetadata"
	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/internal/manifest"
	"github.com/jackfield/jackfield/pkg/apply/nri/capability"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/edits"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
)

// explanation is what explain prints about one container.
type explanation struct {
	place
	Container string  `json:"container"`
	Verdict   verdict `json:"verdict"`
	// Created is null where not everything was checked.
	Created  *bool          `json:"created"`
	Error    string         `json:"error,omitempty"`
	Requests []resolve.Item `json:"requests"`
	// NotChecked has the requests that could not be resolved, and says what is needed for that.
	NotChecked []resolve.Item `json:"notChecked,omitempty"`
	Warnings   []string       `json:"warnings,omitempty"` // about the pod's annotations
	Edits      edits.Set      `json:"edits"`
	// View is the container's devices.json; absent where it has no attachment.
	View json.RawMessage `json:"view,omitempty"`

	missing  bool    // the pod does not have the container, which an annotation names
	problems []error // of Error, without those of a request
}

// verdict says what would happen to a container.
type verdict string

const (
	verdictCreated    verdict = "created"
	verdictRefused    verdict = "refused"
	verdictIncomplete verdict = "incomplete" // nothing refuses it, but not everything was checked
)

// decide sets the verdict.
func (x *explanation) decide() {
	switch {
	case x.Error != "":
		x.Verdict, x.Created = verdictRefused, new(false)
	case len(x.NotChecked) > 0:
		x.Verdict = verdictIncomplete
	default:
		x.Verdict, x.Created = verdictCreated, new(true)
	}
}

const explainLong = `explain resolves the requests of pods on this node as the NRI plugin would, and
changes nothing. For each container it prints what would be injected, from which
file, by which policy rule, or why not. A refusal comes with the lines to add to
the configuration.

FILE holds Pods, workloads (each pod template is explained), Lists of them, or
several of these as YAML documents; - is standard input. Of a directory, every
*.yaml, *.yml and *.json file is read, and no directory below it.

Network attachments are found by the ID of the pod's sandbox, or its beginning.
Without --sandbox-id the networks that a pod names are not checked, and explain
says so. Of networks whose NetworkAttachmentDefinition is in FILE, the ports are
checked against the policy. Of a resource claim, the names of claim and request are
checked against the pod and the ResourceClaims and ResourceClaimTemplates in FILE;
its devices are checked only with --sandbox-id, on the node of the running pod.
Only that node's kubelet knows which devices it allocated; explain asks it where
policy allows devices.

The exit status is 0 when every container would be created, 1 when one would be
refused, and 3 when none would be refused but not everything could be checked.

Without FILE, and with the ID of a sandbox or container of this node, explain
shows what is on record: the device-info of the sandbox, and what was injected
into its containers. It does not query the container runtime.`

func explainCommand(env Env) *cobra.Command {
	var (
		n   hostFlags
		out output
		q   explainOptions
	)
	cmd := &cobra.Command{
		Use:   "explain {FILE... | --sandbox-id ID | --container-id ID}",
		Short: "Explain what a pod's containers would get here, from which file, by which rule, or why not",
		Long:  explainLong,
		Example: "  jackfield explain pod.yaml\n" +
			"  jackfield explain -f deployment.yaml -n telco\n" +
			"  jackfield explain -f manifests/\n" +
			"  kubectl get pod NAME -o yaml |\n" +
			"      jackfield explain - --sandbox-id ID --container app\n" +
			"  jackfield explain --sandbox-id ID",
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := q.checkFlags(cmd, args); err != nil {
				return err
			}
			if len(q.files) == 0 {
				return n.explainRecord(cmd, env, out, q)
			}
			return n.explainPods(cmd, env, out, q)
		},
	}
	n.addFlags(cmd)
	q.addFlags(cmd)
	cmd.Flags().StringVarP(&q.namespace, "namespace", "n", "", "the `namespace` of pods that name none (default \"default\")")
	cmd.Flags().StringVar(&q.container, "container", "", "only the container of this `name` in the manifest")
	cmd.Flags().StringVar(&q.sandboxID, "sandbox-id", "", "`ID` of the pod's sandbox, by which its network attachments are found")
	cmd.Flags().StringVar(&q.containerID, "container-id", "", "`ID` of a container of this node")
	completeFlag(cmd, "sandbox-id", n.completeFromStatus(sandboxIDs))
	completeFlag(cmd, "container-id", n.completeFromStatus(containerIDs))
	out.addFlag(cmd)
	return cmd
}

// explainOptions are the flags and arguments of explain.
type explainOptions struct {
	manifestFlags
	container, sandboxID, containerID string
}

func (q *explainOptions) checkFlags(cmd *cobra.Command, args []string) error {
	if err := q.manifestFlags.checkFlags(cmd, args); err != nil {
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

func (n *hostFlags) explainPods(cmd *cobra.Command, env Env, out output, q explainOptions) error {
	if err := q.readPods(cmd, env, q.container); err != nil {
		return err
	}
	if q.sandboxID != "" && len(q.Pods) > 1 {
		return usagef(cmd, "--sandbox-id is of one pod; found %d pods in %s", len(q.Pods), strings.Join(q.files, ", "))
	}
	local, err := n.openNode(cmd)
	if err != nil {
		return err
	}
	engine, err := local.openEngine(env)
	if err != nil {
		return err
	}
	defer engine.Close()
	if q.sandboxID, err = local.findSandbox(env, q.sandboxID); err != nil {
		return err
	}
	x := explainer{explainOptions: q, localNode: local, env: env, engine: engine}
	x.readMetadata(q.Pods)
	all := []explanation{}
	for _, p := range q.Pods {
		all = append(all, x.explainPod(cmd.Context(), p)...)
	}
	err = out.writeResult(env, all, func() string { return explanationsText(local.cfg, all) })
	has := func(v verdict) bool {
		return slices.ContainsFunc(all, func(x explanation) bool { return x.Verdict == v })
	}
	if err == nil && !has(verdictRefused) && has(verdictIncomplete) {
		return errNoAnswer
	}
	return answerError(err, !has(verdictRefused))
}

// explainer explains the containers of pods. The engine explains what an adapter would request. A manifest
// says more, about networks, ports and resource claims: the explainer adds an item for each of these.
type explainer struct {
	explainOptions
	localNode
	env    Env
	engine *resolve.Engine

	metadata []devicemetadata.File // of this node
	// live is set for a pod with a sandbox on this node: the engine asks the kubelet which of the
	// metadata files are the container's.
	live bool
	// missing is what a pod needs to be live.
	missing string
}

// explainPod explains all containers of a pod, or the one that the options name.
func (x *explainer) explainPod(ctx context.Context, p *manifest.Pod) []explanation {
	warnings := printWarnings(x.env, x.cfg, p)
	var all []explanation
	for _, r := range p.Requests(x.sandboxID, x.container) {
		var more []resolve.Item
		if x.sandboxID == "" {
			more = append(x.explainPorts(r), x.uncheckedNetworks(r)...)
		}
		more = append(more, x.explainClaims(p, r)...)
		r.CanDeliver, r.FromManifest = checkDeliverable, true
		plan, err := x.engine.Explain(ctx, r)
		err = addItems(r, plan, err, more)
		all = append(all, x.newExplanation(r, plan, err))
	}
	for _, m := range p.MissingContainers(x.cfg) {
		all = append(all, explanation{Container: m.Name, Error: m.Problem, missing: true, problems: []error{errors.New(m.Problem)}, Requests: []resolve.Item{}})
	}
	for i := range all {
		all[i].place, all[i].Warnings = placeOf(p), warnings
		all[i].decide()
	}
	return all
}

// checkDeliverable returns an error for edits that no version of NRI can deliver. The doctor and
// the plugin report what the node's own version cannot.
func checkDeliverable(set *edits.Set, request string) error {
	return capability.Check(set, capability.Capabilities{DeviceRules: true, NetDevices: true, RDT: true, Validate: true}, request)
}

// addItems adds items to a plan whose error is err, and fails what the plugin cannot deliver. It returns the
// error of the whole.
func addItems(r *resolve.Request, plan *resolve.Plan, err error, more []resolve.Item) error {
	var errs []error
	var failed *resolve.Error
	if errors.As(err, &failed) {
		errs = failed.Errs
	}
	for i := range plan.Items {
		if it := &plan.Items[i]; err == nil && it.Outcome == resolve.Injected {
			if err := checkDeliverable(&plan.Set, it.Request); err != nil {
				it.Decline(resolve.Failed, err)
				errs = append(errs, err)
			}
		}
	}
	for _, it := range more {
		if it.FailsContainer() {
			errs = append(errs, it.Err)
		}
	}
	plan.Items = append(plan.Items, more...)
	if len(errs) == 0 {
		return nil
	}
	plan.Set = edits.Set{}
	return &resolve.Error{Container: r.Name(), Errs: errs, Items: plan.Items}
}

// newExplanation returns the explanation of a plan, or of its error.
func (x *explainer) newExplanation(r *resolve.Request, plan *resolve.Plan, err error) explanation {
	out := explanation{Container: r.Name(), Requests: []resolve.Item{}, Edits: plan.Set}
	items := plan.Items
	if err != nil {
		out.Error, items = diag.ErrorText(err), resolve.WithheldItems(items)
		out.problems = otherErrors(err, items)
	}
	for _, it := range items {
		if it.Outcome == resolve.NotChecked {
			out.NotChecked = append(out.NotChecked, it)
		} else {
			out.Requests = append(out.Requests, it)
		}
	}
	for i := range out.Edits.Mounts {
		m := &out.Edits.Mounts[i]
		if m.Origin.Source != edits.CDI {
			m.Source = hostPathOf(x.host, m.Source)
		}
	}
	if plan.Staging != nil {
		for _, f := range plan.Staging.Files {
			if f.Name == resolve.ViewFile {
				out.View = f.Data
			}
		}
	}
	return out
}

// otherErrors returns the errors that no item has.
func otherErrors(err error, items []resolve.Item) []error {
	all := []error{err}
	var many *resolve.Error
	if errors.As(err, &many) {
		all = slices.Clone(many.Errs)
	}
	return slices.DeleteFunc(all, func(err error) bool {
		return slices.ContainsFunc(items, func(it resolve.Item) bool { return it.Err != nil && errors.Is(err, it.Err) })
	})
}

// hostPathOf removes the directory of --root from a path: all printed paths are host paths.
func hostPathOf(host hostfs.Root, p string) string {
	if rest, ok := strings.CutPrefix(p, host.Dir()+"/"); ok {
		return "/" + rest
	}
	return p
}

func explanationsText(cfg *config.Config, all []explanation) string {
	var b strings.Builder
	var previous place
	for i := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		heading := all[i].heading(previous)
		b.WriteString(strings.ReplaceAll(heading, "\n", "\n\n"))
		previous = all[i].place
		t := explainText{x: &all[i], cfg: cfg, b: &b}
		t.writeExplanation()
	}
	return b.String()
}
