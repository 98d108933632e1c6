// SPDX-License-Identifier: Apache-2.0

package cli

import (
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
)

// explanation is what explain prints of one container.
type explanation struct {
	Container string         `json:"container"`
	Created   bool           `json:"created"` // false: the container would be refused
	Error     string         `json:"error,omitempty"`
	Requests  []resolve.Item `json:"requests"`
	Edits     edits.Set      `json:"edits"`
	// View is what the container would find in devices.json; absent where it has
	// no attachment.
	View json.RawMessage `json:"view,omitempty"`

	problems []string // what Error joins, less what is the reason of a request
}

const explainLong = `explain resolves a pod's requests on this node as the NRI plugin would, changes
nothing, and prints for each container what would be injected, from which file,
by which policy rule, or why not. The exit status is 1 when a container would be
refused. A refusal comes with the lines to add to the configuration.

Network attachments are found by the ID of the pod's sandbox; without
--sandbox-id there are none. What the kubelet allocated to a container, only the
kubelet of its node knows, which is asked where policy lets devices come.

Without --pod, and with the ID of a sandbox or container of this node, explain
shows what is on record: the device-info of the sandbox, and what its containers
were given. It does not ask the container runtime.`

func explainCommand(env Env) *cobra.Command {
	var (
		n   node
		out output
		q   question
	)
	cmd := &cobra.Command{
		Use:   "explain {--pod FILE | --sandbox-id ID | --container-id ID}",
		Short: "Tell what a pod's containers would get here, from which file, by which rule, or why not",
		Long:  explainLong,
		Example: "  jackfield explain --pod pod.yaml\n" +
			"  kubectl get pod NAME -o yaml | jackfield explain --pod - --sandbox-id ID --container app\n" +
			"  jackfield explain --sandbox-id ID",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(cmd); err != nil {
				return err
			}
			if err := q.check(cmd); err != nil {
				return err
			}
			if q.podFile == "" {
				return n.explainRunning(cmd, env, out, q)
			}
			return n.explainPod(cmd, env, out, q)
		},
	}
	n.flags(cmd)
	cmd.Flags().StringVar(&q.podFile, "pod", "", "`file` with the Pod manifest, - for standard input")
	cmd.Flags().StringVar(&q.container, "container", "", "only the container of this `name` in the manifest")
	cmd.Flags().StringVar(&q.sandboxID, "sandbox-id", "", "`ID` of the pod's sandbox, by which its network attachments are found")
	cmd.Flags().StringVar(&q.containerID, "container-id", "", "`ID` of a container of this node")
	out.flag(cmd)
	return cmd
}

// question is whom explain is asked about.
type question struct {
	podFile, container, sandboxID, containerID string
}

func (q *question) check(cmd *cobra.Command) error {
	switch {
	case q.podFile == "" && q.sandboxID == "" && q.containerID == "":
		return usagef(cmd, "want --pod with a manifest (- for standard input), --sandbox-id or --container-id")
	case q.podFile != "" && q.containerID != "":
		return usagef(cmd, "--pod and --container-id do not go together; --container names one of the manifest")
	case q.podFile == "" && q.container != "":
		return usagef(cmd, "--container names a container of a manifest, and goes with --pod")
	}
	return nil
}

func (n *node) explainPod(cmd *cobra.Command, env Env, out output, q question) error {
	p, err := readPod(q.podFile, env.Stdin)
	if err != nil {
		return err
	}
	requests := p.requests(q.sandboxID)
	if q.container != "" {
		names := make([]string, len(requests))
		for i, r := range requests {
			names[i] = r.Container
		}
		requests = slices.DeleteFunc(requests, func(r *resolve.Request) bool { return r.Container != q.container })
		if len(requests) == 0 {
			return fmt.Errorf("pod %q has no container %q, but %s: %w", p.Metadata.Name, q.container, strings.Join(names, ", "), errdefs.ErrNotFound)
		}
	}
	engine, host, cfg, err := n.engine(cmd, env)
	if err != nil {
		return err
	}
	if q.sandboxID != "" {
		if found, err := dirsOf(host, cfg).networks(q.sandboxID); err == nil && len(found) == 0 {
			env.say("no device-info of sandbox %s in %s; the ID must be whole", q.sandboxID, cfg.DeviceInfo.CNIDir)
		}
	}
	all := make([]explanation, 0, len(requests))
	for _, r := range requests {
		r.Carries = carries
		plan, err := engine.Explain(cmd.Context(), r)
		if err == nil {
			err = undeliverable(r, plan)
		}
		all = append(all, explain(host, r, plan, err))
	}
	if err := engine.Close(); err != nil {
		return err
	}
	err = out.write(env.Stdout, all, func(w io.Writer) error { return printExplanations(w, cfg, all) })
	return answer(err, !slices.ContainsFunc(all, func(x explanation) bool { return !x.Created }))
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
	x := explanation{Container: r.Name(), Created: err == nil, Requests: plan.Items, Edits: plan.Set}
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
	if err == nil {
		return x
	}
	x.Error = err.Error()
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
			x.problems = append(x.problems, p.Error())
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
		t := explainText{x: &all[i], cfg: cfg, b: &b}
		t.write()
	}
	_, err := io.WriteString(w, b.String())
	return err
}
