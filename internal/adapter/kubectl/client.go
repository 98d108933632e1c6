// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// container is the name of the plugin's container in its pod, in the chart and in the kustomization.
const container = "jackfield-nri"

// client runs kubectl for one command line.
type client struct {
	env                                                           Env
	kubeconfig, context, as, namespace, pluginNamespace, selector string
	output                                                        string
	watch, allNamespaces                                          bool
	nodes                                                         string // label selector, without a pod
}

// pod is the part of a pod that the commands need.
type pod struct {
	Metadata struct {
		Name, Namespace, UID string
		DeletionTimestamp    string
	}
	Spec struct {
		NodeName   string
		Containers []struct{ Name string }
	}
	Status struct {
		Phase             string
		Conditions        []struct{ Type, Status, Message string }
		ContainerStatuses []struct {
			State struct{ Waiting *struct{ Reason string } }
		}
	}
}

func (p *pod) title() string { return p.Metadata.Namespace + "/" + p.Metadata.Name }

// state returns the pod's phase, with the reason if a container waits.
func (p *pod) state() string {
	if p.Metadata.DeletionTimestamp != "" {
		return "Terminating"
	}
	for _, s := range p.Status.ContainerStatuses {
		if s.State.Waiting != nil && s.State.Waiting.Reason != "" {
			return p.Status.Phase + " (" + s.State.Waiting.Reason + ")"
		}
	}
	return p.Status.Phase
}

// isPlugin reports whether the pod has the plugin's container.
func (p *pod) isPlugin() bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c struct{ Name string }) bool { return c.Name == container })
}

// kubectl runs kubectl. Its error has the standard error of kubectl.
func (c *client) kubectl(ctx context.Context, stdin io.Reader, stdout io.Writer, args ...string) error {
	var flags []string
	for _, f := range [][2]string{{"--kubeconfig", c.kubeconfig}, {"--context", c.context}, {"--as", c.as}} {
		if f[1] != "" {
			flags = append(flags, f[0]+"="+f[1])
		}
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "kubectl", append(flags, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &stderr
	err := cmd.Run()
	if err == nil {
		_, err = io.WriteString(c.env.Stderr, plain(stderr.String())) // warnings
		return err
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return &failure{text: "run kubectl: " + err.Error(), hint: "install kubectl, and have its directory in PATH",
			code: exitError}
	}
	if ctx.Err() != nil {
		return &failure{code: exitError} // the user ended it
	}
	text := cmp.Or(strings.TrimSpace(stderr.String()), "run kubectl: "+err.Error())
	// kubectl ends with this line if the program in the pod failed. The text before it is jackfield's own message.
	if rest, ok := strings.CutSuffix(text, fmt.Sprintf("command terminated with exit code %d", exit.ExitCode())); ok {
		_, err := io.WriteString(c.env.Stderr, plain(rest))
		return errors.Join(&failure{code: exit.ExitCode()}, err)
	}
	return describeFailure(text)
}

// describeFailure turns kubectl's message into an error. If a permission is missing, the hint has the RBAC rule for it.
func describeFailure(text string) error {
	forbidden := regexp.MustCompile(`User "([^"]*)" cannot (\w+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)
	f := &failure{text: text, code: exitError}
	if m := forbidden.FindStringSubmatch(text); m != nil {
		where := "a ClusterRole and a ClusterRoleBinding"
		if m[5] != "" {
			where = fmt.Sprintf("a Role and a RoleBinding of the namespace %q", m[5])
		}
		f.hint = fmt.Sprintf("to allow it to %q, add to the rules of %s: {apiGroups: [%q], resources: [%q], verbs: [%s]}",
			m[1], where, m[4], m[3], m[2])
		if m[3] == "pods/exec" {
			f.hint += "; this permission gives control of the nodes: as a tenant, use `kubectl describe pod`"
		}
		if m[3] == "pods" && m[5] == "" {
			f.hint += "; or name the namespace of Jackfield's pods with --plugin-namespace"
		}
	}
	return f
}

// get decodes the objects of a `kubectl get`, and returns their text.
func (c *client) get(ctx context.Context, into any, args ...string) (string, error) {
	var out bytes.Buffer
	if err := c.kubectl(ctx, nil, &out, append([]string{"get", "--output=json"}, args...)...); err != nil {
		return "", err
	}
	text := out.String()
	if err := json.Unmarshal(out.Bytes(), into); err != nil {
		return "", &failure{text: "read the answer of kubectl: " + err.Error(), code: exitError}
	}
	return text, nil
}

// target is a pod on a node, its whole manifest, and Jackfield's pod on that node.
type target struct {
	pod
	manifest string
	plugin   *pod
}

// findTarget finds a pod. The name can have the form of jackfield, NAMESPACE/NAME.
func (c *client) findTarget(ctx context.Context, name string) (*target, error) {
	namespace := c.namespace
	if before, after, ok := strings.Cut(strings.TrimPrefix(name, "pod/"), "/"); ok {
		namespace, name = before, after
	}
	args := []string{"pod", strings.TrimPrefix(name, "pod/")}
	if namespace != "" {
		args = append(args, "--namespace="+namespace)
	}
	t := &target{}
	var err error
	if t.manifest, err = c.get(ctx, &t.pod, args...); err != nil {
		var f *failure
		if errors.As(err, &f) && strings.Contains(f.text, "(NotFound)") {
			f.code, f.hint = exitNo, "check the name and --namespace"
		}
		return nil, err
	}
	// Without a node there is no plugin to ask. The scheduler's condition shows the reason.
	if t.Spec.NodeName == "" {
		why := ""
		for _, condition := range t.Status.Conditions {
			if condition.Type == "PodScheduled" && condition.Message != "" {
				why = ": " + condition.Message
			}
		}
		return nil, &failure{text: fmt.Sprintf("pod %s is not on a node yet%s", t.title(), why), code: exitError,
			hint: "`jackfield explain` and `jackfield policy check` take its manifest"}
	}
	t.plugin, err = c.findPlugin(ctx, t.Spec.NodeName)
	return t, err
}

// findNamespace returns the namespace of Jackfield's pods: the user's choice, or else the only namespace with such
// pods. Anybody who can create pods can give them the labels of Jackfield, so several namespaces are an error.
func (c *client) findNamespace(ctx context.Context) (string, error) {
	if named := cmp.Or(c.pluginNamespace, c.env.Getenv("JACKFIELD_NAMESPACE")); named != "" {
		return named, nil
	}
	var list struct{ Items []pod }
	if _, err := c.get(ctx, &list, "pods", "--all-namespaces", "--selector="+c.selector); err != nil {
		return "", err
	}
	var namespaces []string
	for i := range list.Items {
		if p := &list.Items[i]; p.isPlugin() && !slices.Contains(namespaces, p.Metadata.Namespace) {
			namespaces = append(namespaces, p.Metadata.Namespace)
		}
	}
	slices.Sort(namespaces)
	switch len(namespaces) {
	case 0:
		return "", &failure{text: "no namespace has pods with the labels " + c.selector + " and a container " + container,
			code: exitError, hint: checkInstalled}
	case 1:
		return namespaces[0], nil
	}
	return "", &failure{text: fmt.Sprintf("%d namespaces have pods with the labels %s: %s", len(namespaces), c.selector,
		strings.Join(namespaces, ", ")), code: exitError,
		hint: "name the namespace in which you installed Jackfield with --plugin-namespace or JACKFIELD_NAMESPACE; check " +
			"who created the pods in the others"}
}

const checkInstalled = "check that Jackfield is installed, and the nodeSelector and tolerations of its DaemonSet; " +
	"--selector and --plugin-namespace name other pods"

// findPlugin returns Jackfield's pod on a node.
func (c *client) findPlugin(ctx context.Context, node string) (*pod, error) {
	namespace, err := c.findNamespace(ctx)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []pod }
	if _, err := c.get(ctx, &list, "pods", "--namespace="+namespace, "--selector="+c.selector,
		"--field-selector=spec.nodeName="+node); err != nil {
		return nil, err
	}
	plugin, other := choosePlugin(list.Items)
	if plugin == nil {
		return nil, &failure{text: fmt.Sprintf("no pod with the labels %s runs on node %s%s", c.selector, node, other),
			code: exitError, hint: checkInstalled}
	}
	return plugin, nil
}

// choosePlugin returns the running pod of Jackfield among the pods of one node. If none runs, other ends the error
// message: it has the state of a pod that does not run.
func choosePlugin(pods []pod) (plugin *pod, other string) {
	for i := range pods {
		p := &pods[i]
		switch {
		case !p.isPlugin():
		case p.Status.Phase == "Running" && p.Metadata.DeletionTimestamp == "":
			return p, ""
		default:
			other = fmt.Sprintf("; pod %s is %s", p.title(), p.state())
		}
	}
	return nil, other
}

// exec runs jackfield in the plugin's pod.
func (c *client) exec(ctx context.Context, plugin *pod, stdin io.Reader, stdout io.Writer, command ...string) error {
	args := []string{"exec", "--namespace=" + plugin.Metadata.Namespace, plugin.Metadata.Name, "--container=" + container}
	switch {
	case c.watch:
		stdin = c.env.Stdin
		args = append(args, "--stdin", "--tty") // Ctrl-C ends jackfield, and so does a lost connection
	case stdin != nil:
		args = append(args, "--stdin")
	}
	answer := &answerWriter{out: stdout}
	color := "never"
	if stdout == c.env.Stdout && isTerminal(stdout) && c.env.Getenv("NO_COLOR") == "" {
		color = "always"
		answer.allowed = append(answer.allowed, colorSequences...)
	}
	if c.watch {
		answer.allowed = append(answer.allowed, redrawSequences...)
	}
	args = append(args, "--", "jackfield")
	err := c.kubectl(ctx, stdin, answer, append(append(args, command...), "--color="+color)...)
	return errors.Join(err, answer.flush())
}

// findSandbox returns the ID of the pod's sandbox, or "". The plugin reports the ID: the API server does not have it.
func (c *client) findSandbox(ctx context.Context, t *target) (string, error) {
	var out, messages bytes.Buffer
	buffered := *c
	buffered.env.Stderr = &messages
	err := buffered.exec(ctx, t.plugin, nil, &out, "status", t.title(), "--output=json")
	var f *failure
	if err != nil && (!errors.As(err, &f) || f.text != "" || f.code != exitNo) { // 1: nothing is injected into the pod
		_, unwritten := messages.WriteTo(c.env.Stderr)
		return "", errors.Join(err, unwritten)
	}
	var node struct {
		Containers []struct{ Sandbox, PodUID string }
		Sandboxes  []struct{ ID, UID string }
	}
	if err := json.Unmarshal(out.Bytes(), &node); err != nil {
		return "", &failure{text: "read the plugin's status: " + err.Error(), code: exitError}
	}
	// A sandbox with containers comes first: the pod may have an older one, which has ended.
	for _, s := range node.Containers {
		if s.PodUID == t.Metadata.UID {
			return s.Sandbox, nil
		}
	}
	for _, s := range node.Sandboxes {
		if s.UID == t.Metadata.UID {
			return s.ID, nil
		}
	}
	return "", nil
}
