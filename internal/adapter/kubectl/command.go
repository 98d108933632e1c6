// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/base/version"
)

// Exit statuses, as those of jackfield.
const (
	exitNo    = 1
	exitUsage = 2
	exitError = 3
)

// Env is the environment of the command.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// Run executes the command line and returns the exit status.
func Run(ctx context.Context, args []string, env Env) int {
	cmd := Command(env)
	cmd.SetArgs(args)
	cmd.SetOut(env.Stdout)
	cmd.SetErr(env.Stderr)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var f *failure
	if !errors.As(err, &f) {
		f = &failure{text: err.Error(), code: exitUsage} // cobra's own error
	}
	if f.text != "" {
		// The API server's messages quote names and texts of others.
		fmt.Fprintf(env.Stderr, "kubectl-jackfield: %s\n", plain(f.text))
	}
	if f.hint != "" {
		fmt.Fprintf(env.Stderr, "hint: %s\n", plain(f.hint))
	}
	return f.code
}

// failure is why there is no answer, or the exit status of jackfield, which has said why itself: then text is "".
type failure struct {
	text, hint string
	code       int
}

func (f *failure) Error() string { return f.text }

const long = `kubectl jackfield runs a command of jackfield in the pod of Jackfield's DaemonSet that is
on the node of a pod. It finds the node and the sandbox of the pod by itself. Without a
pod, status shows the health of every node.

It runs kubectl, which must be in PATH, and needs these rights: get pods in the pod's
namespace, list pods in that of Jackfield (or in all, if neither --plugin-namespace nor
JACKFIELD_NAMESPACE names it), create pods/exec there, and list nodes to show all of
them. A user with these rights can run any command in Jackfield's pods, so the
command is for administrators.

The exit status is that of jackfield: 0 for yes, 1 for no, 2 for a mistake in the
command line, and 3 when there is no answer. For several nodes, it is 1 if one has a
problem, and otherwise 3 if one could not be read.`

// Command returns the command.
func Command(env Env) *cobra.Command {
	c := &client{env: env}
	root := &cobra.Command{
		Use:           "kubectl-jackfield",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl jackfield"},
		Short:         "Show what Jackfield does for a pod, on the pod's node",
		Long:          long,
		Version:       version.String(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &failure{text: err.Error(), hint: fmt.Sprintf("run `%s --help`", cmd.CommandPath()), code: exitUsage}
	})
	root.SetVersionTemplate("kubectl-jackfield {{.Version}}\n")
	f := root.PersistentFlags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubectl's `file` with clusters and users")
	f.StringVar(&c.context, "context", "", "`name` of the kubeconfig's context")
	f.StringVar(&c.as, "as", "", "`user` to impersonate")
	f.StringVarP(&c.namespace, "namespace", "n", "", "the `namespace` of the pod (default: that of kubectl's context)")
	f.StringVar(&c.pluginNamespace, "plugin-namespace", "", "`namespace` of Jackfield's pods (default: "+
		"$JACKFIELD_NAMESPACE, or the only one with such pods)")
	f.StringVarP(&c.selector, "selector", "l", "app.kubernetes.io/name=jackfield", "`labels` of Jackfield's pods")
	root.AddCommand(
		c.explainCommand(),
		c.listCommand("status", "Show the health of all nodes, or what was injected into a pod's running containers"),
		c.listCommand("sockets", "List the sockets of running containers, with peers, age and rebinds"),
		c.doctorCommand(),
	)
	return root
}

// command returns a subcommand with --output and at most one argument, the pod.
func (c *client) command(use, short string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.MaximumNArgs(1)}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		formats := []string{"text", "json", "yaml"}
		if cmd.Name() == "sockets" {
			formats = append(formats, "wide")
		}
		if !slices.Contains(formats, c.output) {
			return fmt.Errorf("invalid value %q of --output: must be one of %s", c.output, strings.Join(formats, ", "))
		}
		return run(cmd, args)
	}
	cmd.Flags().StringVarP(&c.output, "output", "o", "text", "`format`: text, json or yaml, and wide for sockets")
	return cmd
}

// listCommand returns a subcommand for a pod, or for the pods of all nodes.
func (c *client) listCommand(name, short string) *cobra.Command {
	cmd := c.command(name+" [POD]", short, func(cmd *cobra.Command, args []string) error {
		// A named pod is on one node. Without a pod, the command runs on every node.
		switch {
		case len(args) > 0 && c.allNamespaces:
			return errors.New("--all-namespaces is not for one pod")
		case len(args) > 0:
			t, err := c.findTarget(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.run(cmd.Context(), name, t)
		case c.watch:
			return errors.New("--watch requires a pod")
		case c.allNamespaces || c.namespace != "":
			return c.runOnAllNodes(cmd.Context(), name)
		case name == "status":
			return c.showHealth(cmd.Context())
		}
		return fmt.Errorf("%s: requires a pod, --namespace or --all-namespaces", name)
	})
	f := cmd.Flags()
	f.BoolVarP(&c.allNamespaces, "all-namespaces", "A", false, "the pods of all namespaces, on all nodes")
	f.StringVar(&c.nodes, "node-selector", "kubernetes.io/os=linux", "`labels` of the nodes, without a pod")
	f.BoolVarP(&c.watch, "watch", "w", false, "print changes until interrupted: the whole output again, in "+
		"place; needs a terminal")
	return cmd
}

// explainCommand returns the subcommand for a pod, or for manifests and the node on which their pods would run.
func (c *client) explainCommand() *cobra.Command {
	node, file := "", ""
	cmd := c.command("explain {POD | -f FILE --node NODE}", "Explain what a pod's containers would get now, from which "+
		"file, by which rule, or why not", func(cmd *cobra.Command, args []string) error {
		switch {
		case (len(args) == 0) == (file == ""):
			return errors.New("explain: requires a pod, or --filename FILE and --node NODE")
		case (file == "") != (node == ""):
			return errors.New("explain: --filename and --node NODE go together: the node is where the pods would run")
		case file != "":
			return c.explainFile(cmd.Context(), file, node)
		}
		t, err := c.findTarget(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return c.explain(cmd.Context(), t)
	})
	cmd.Flags().StringVarP(&file, "filename", "f", "",
		"`FILE`, directory or URL with pods or workloads; - is standard input")
	cmd.Flags().StringVar(&node, "node", "", "`name` of the node on which the pods of --filename would run")
	return cmd
}

// doctorCommand returns the subcommand for a node, which the user may name instead of a pod on it.
func (c *client) doctorCommand() *cobra.Command {
	node := ""
	cmd := c.command("doctor {POD | --node NODE}", "Find what keeps containers on a pod's node from getting devices and "+
		"sockets", func(cmd *cobra.Command, args []string) (err error) {
		if (len(args) == 0) == (node == "") {
			return errors.New("doctor: requires a pod or --node NODE")
		}
		t := &target{}
		if node == "" {
			t, err = c.findTarget(cmd.Context(), args[0])
		} else {
			t.plugin, err = c.findPlugin(cmd.Context(), node)
		}
		if err != nil {
			return err
		}
		return c.exec(cmd.Context(), t.plugin, nil, c.env.Stdout, cmd.Name(), c.format())
	})
	cmd.Flags().StringVar(&node, "node", "", "`name` of the node")
	return cmd
}

// run runs a command of jackfield that takes a pod.
func (c *client) run(ctx context.Context, name string, t *target) error {
	args := []string{name, t.title(), c.format()}
	if c.watch {
		if !isTerminal(c.env.Stdout) {
			return errors.New("--watch needs a terminal")
		}
		args = append(args, "--watch")
	}
	return c.exec(ctx, t.plugin, nil, c.env.Stdout, args...)
}

// explain explains the pod's manifest, with the networks of its sandbox.
func (c *client) explain(ctx context.Context, t *target) error {
	args := []string{"explain", "-", c.format()}
	sandbox, err := c.findSandbox(ctx, t)
	if err != nil {
		return err
	}
	if sandbox != "" {
		args = append(args, "--sandbox-id", sandbox)
	} else {
		fmt.Fprintf(c.env.Stderr, "kubectl-jackfield: the plugin on node %s knows no sandbox of pod %s yet: its networks "+
			"are not checked\n", t.Spec.NodeName, t.title())
	}
	reduced, err := reduceManifest(t.manifest)
	if err != nil {
		return err
	}
	return c.exec(ctx, t.plugin, strings.NewReader(reduced), c.env.Stdout, args...)
}

// explainFile explains the pods of manifests as they would be created on a node. kubectl reads the manifests, and sets
// the namespace of objects without one.
func (c *client) explainFile(ctx context.Context, file, node string) error {
	plugin, err := c.findPlugin(ctx, node)
	if err != nil {
		return err
	}
	args := []string{"create", "--dry-run=client", "--output=json", "--filename=" + file}
	if c.namespace != "" {
		args = append(args, "--namespace="+c.namespace)
	}
	var stdin io.Reader
	if file == "-" {
		stdin = c.env.Stdin
	}
	var objects bytes.Buffer
	if err := c.kubectl(ctx, stdin, &objects, args...); err != nil {
		return err
	}
	reduced, err := reduceManifests(&objects)
	if err != nil {
		return err
	}
	return c.exec(ctx, plugin, strings.NewReader(reduced), c.env.Stdout, "explain", "-", c.format())
}

// format is the flag for the format of the result.
func (c *client) format() string { return "--output=" + c.output }

// isTerminal reports whether w is a terminal, or another character device.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0
}
