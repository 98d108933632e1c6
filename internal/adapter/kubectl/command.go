// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
on the node of a pod. It finds the node and the sandbox of the pod by itself. It runs
kubectl, which must be in PATH, and needs these rights: get pods in the pod's
namespace, list pods in that of Jackfield (or in all, if neither --plugin-namespace nor
JACKFIELD_NAMESPACE names it), and create pods/exec there. Who has these can run any command in Jackfield's pods, so it is
for administrators.

The exit status is that of jackfield: 0 for yes, 1 for no, 2 for a mistake in the
command line, and 3 when there is no answer.`

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
		c.command("explain POD", "Explain what a pod's containers would get now, from which file, by which rule, or why not",
			c.explain),
		c.watchable(c.command("status POD", "Show what was injected into a pod's running containers", c.run)),
		c.watchable(c.command("sockets POD", "List the sockets of a pod's running containers, with peers, age and rebinds",
			c.run)),
		c.doctorCommand(),
	)
	return root
}

// command returns a subcommand for one pod. do gets the command's name.
func (c *client) command(use, short string, do func(ctx context.Context, name string, t *target) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := c.findTarget(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return do(cmd.Context(), cmd.Name(), t)
		},
	}
	cmd.Flags().StringVarP(&c.output, "output", "o", "text", "`format`: text, json or yaml, and wide for sockets")
	return cmd
}

func (c *client) watchable(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "print changes until interrupted: the whole output again, in "+
		"place; needs a terminal")
	return cmd
}

// doctorCommand returns the subcommand for a node, which the user may name instead of a pod on it.
func (c *client) doctorCommand() *cobra.Command {
	node := ""
	cmd := c.command("doctor {POD | --node NODE}", "Find what keeps containers on a pod's node from getting devices and "+
		"sockets", nil)
	cmd.Args = cobra.MaximumNArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
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
	}
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
func (c *client) explain(ctx context.Context, name string, t *target) error {
	args := []string{name, "-", c.format()}
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
