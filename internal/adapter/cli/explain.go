// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/explain"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/devices"
)

// explanation is the output of explain about one container.
type explanation struct {
	place
	explain.Explanation
}

const explainLong = `explain resolves the requests of pods on this node as the NRI plugin would, and
changes nothing. For each container it prints what would be injected, from which
file, by which policy rule, or why not. A refusal comes with the lines to add to
the configuration.

FILE holds Pods, workloads (each pod template is explained), Lists of them, or
several of these as YAML documents; - is standard input. Of a directory, every
*.yaml, *.yml and *.json file is read, and no directory below it. Of several files,
one that cannot be read is reported, and the others are explained.

Network attachments are found by the ID of the pod's sandbox, or its beginning.
Without --sandbox-id the networks that a pod names are not checked, and explain
says so. Of networks whose NetworkAttachmentDefinition is in FILE, the ports are
checked against the policy. Of a resource claim, the names of claim and request are
checked against the pod and the ResourceClaims and ResourceClaimTemplates in FILE;
its devices are checked only with --sandbox-id, on the node of the running pod.
Only that node's kubelet knows which devices it allocated; explain asks it where
policy allows devices. If a container gets arguments for DPDK, -m and --socket-mem of
its command line are compared with its hugepages limits. A mount source or hook program
of a CDI file that the host does not have fails the container.

Requests that Jackfield would never see are reported: an annotation for a container
that the pod does not have is an error; a misspelt key, cdi.k8s.io without a name, and
annotations on a Deployment instead of its pod template are warnings.

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
			"  jackfield explain deployment.yaml -n telco\n" +
			"  jackfield explain manifests/\n" +
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
	addNamespaceFlag(cmd, &q.namespace, "pods that name none (default \"default\")")
	cmd.Flags().StringVar(&q.container, "container", "", "only the container of this `name` in the manifest")
	cmd.Flags().StringVar(&q.sandboxID, "sandbox-id", "", "`ID` of the pod's sandbox, by which its network attachments "+
		"are found")
	cmd.Flags().StringVar(&q.containerID, "container-id", "", "`ID` of a container of this node")
	completeFlag(cmd, "sandbox-id", n.completeFromStatus(sandboxIDs))
	completeFlag(cmd, "container-id", n.completeFromStatus(containerIDs))
	out.addFlag(cmd)
	return cmd
}

// explainOptions are the flags and arguments of explain.
type explainOptions struct {
	manifestFlags
	sandboxID, containerID string
}

func (q *explainOptions) checkFlags(cmd *cobra.Command, args []string) error {
	if err := q.manifestFlags.checkFlags(cmd, args); err != nil {
		return err
	}
	// A manifest, or an ID without one, is explained.
	switch {
	case cmd.Flags().Changed("sandbox-id") && q.sandboxID == "":
		return usagef(cmd, "--sandbox-id: the ID is empty")
	case len(q.files) == 0 && q.sandboxID == "" && q.containerID == "":
		return usagef(cmd, "must have a file with pods (- for standard input), --sandbox-id or --container-id")
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
	if err := q.readPods(cmd, env); err != nil {
		return err
	}
	if q.sandboxID != "" && len(q.Pods) > 1 {
		return usagef(cmd, "--sandbox-id is for one pod: invalid number of pods in %[2]s: %[1]d", len(q.Pods),
			strings.Join(q.files, ", "))
	}
	local, err := n.openInForce(cmd, env)
	if err != nil {
		return err
	}
	sandboxID, err := local.findSandbox(env, q.sandboxID)
	if err != nil {
		return err
	}
	explainer, err := explain.New(explain.Options{
		Host: local.host, Config: local.cfg, SpecDirs: env.Getenv(cdi.DirsEnv), Manifests: &q.Objects, SandboxID: sandboxID, Container: q.container,
		IsPod: isPod(env, local.host),
	})
	if err != nil {
		return err
	}
	defer explainer.Close()
	if err := explainer.MetadataError; err != nil {
		env.message("warning: not all device metadata is read: %v", err)
	}
	for _, w := range explainer.RefusedHooks {
		env.message("warning: %s", w)
	}
	if isPod(env, local.host) {
		env.message("note: this is a pod, which does not see the host's files: mount sources and hook programs of CDI " +
			"files are not checked")
	}
	all := []explanation{}
	for _, p := range q.Pods {
		printWarnings(env, local.cfg, p)
		for _, x := range explainer.ExplainPod(cmd.Context(), p) {
			all = append(all, explanation{placeOf(p), x})
		}
	}
	has := func(v explain.Verdict) bool {
		return slices.ContainsFunc(all, func(x explanation) bool { return x.Verdict == v })
	}
	err = out.writeResult(env, all, func() string { return explanationsText(local.cfg, all) })
	return answerError(err, has(explain.Refused), has(explain.Incomplete) || q.unread > 0)
}

// findSandbox returns the whole ID of the sandbox that --sandbox-id names.
func (n localNode) findSandbox(env Env, id string) (string, error) {
	whole, recorded, err := explain.FindSandbox(n.host, n.cfg, id)
	if errdefs.IsNotFound(err) {
		return "", &hintedError{err: err, hint: "the whole ID is taken as it is: crictl pods --no-trunc"}
	}
	if err == nil && !recorded {
		env.message("note: there is no device-info of sandbox %s in %s", whole, n.cfg.DeviceInfo.CNIDir)
	}
	return whole, err
}

func explanationsText(cfg *config.Config, all []explanation) string {
	t := explainText{cfg: cfg}
	var previous place
	for i := range all {
		if i > 0 {
			t.WriteByte('\n')
		}
		heading := all[i].heading(previous)
		t.WriteString(strings.ReplaceAll(heading, "\n", "\n\n"))
		previous = all[i].place
		t.writeExplanation(&all[i].Explanation)
	}
	return t.String()
}

// sandboxRecord is the output of explain about a sandbox.
type sandboxRecord struct {
	SandboxID  string                    `json:"sandboxID,omitempty"`
	DeviceInfo []infoFile                `json:"deviceInfo"`
	Containers []explain.ContainerRecord `json:"containers"`
}

func (n *hostFlags) explainRecord(cmd *cobra.Command, env Env, out output, q explainOptions) error {
	for _, id := range []struct{ flag, value string }{{"--sandbox-id", q.sandboxID}, {"--container-id", q.containerID}} {
		if id.value != "" && hostfs.CheckID(id.value) != nil {
			return usagef(cmd, "%s: %w", id.flag, hostfs.CheckID(id.value))
		}
	}
	local, err := n.openInForce(cmd, env)
	if err != nil {
		return err
	}
	found, err := explain.ReadRecord(local.host, local.cfg, q.sandboxID, q.containerID)
	if err != nil {
		return err
	}
	r := sandboxRecord{found.SandboxID, infoFiles(roleCNI, found.DeviceInfo), found.Containers}
	return answerError(out.writeResult(env, r, r.formatText), false, found.HasErrors())
}

func (r *sandboxRecord) formatText() string {
	var b strings.Builder
	fmt.Fprintf(&b, "Sandbox %s\n", plain(r.SandboxID))
	var t table
	for i := range r.DeviceInfo {
		f := &r.DeviceInfo[i]
		t.addRow(f.Interface, f.Network, f.Type, f.stateText(), f.detailText())
	}
	b.WriteString(t.formatText("  "))
	for _, c := range r.Containers {
		fmt.Fprintf(&b, "\nInjected into container %s\n", plain(c.ID))
		view, _ := devices.Parse(c.View)
		var t table
		for i := range view {
			d := &view[i]
			what := d.PCIAddress()
			if info, err := deviceinfo.Parse(d.DeviceInfo, ""); err == nil && info.VDPA != nil {
				what = info.VDPA.Path
			}
			if socket := d.Socket(); socket != "" {
				what = socket + ", created by the " + d.Jackfield.CreatedBy
			}
			t.addRow(d.Interface, d.Name, d.Type(), what)
		}
		b.WriteString(t.formatText("  "))
		if c.Error != "" {
			fmt.Fprintf(&b, "  cannot be read: %s\n", plain(c.Error))
		} else if len(view) == 0 {
			b.WriteString("  no attachment; injected CDI devices are not on record\n")
		}
	}
	return b.String()
}
