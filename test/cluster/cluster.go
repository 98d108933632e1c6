// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
)

// Options of a Cluster. The zero value has a network of kernel interfaces, and no required NRI plugin.
type Options struct {
	// Network is the CNI configuration list of the pods; empty: PodNetwork().
	Network string
	// RequirePlugin makes the runtime refuse containers while Jackfield's plugin is missing. Pods with the
	// annotation tolerate-missing-plugins.noderesource.dev are exempt.
	RequirePlugin bool
	// Audit makes the API server write AuditLog.
	Audit bool
	// Logf reports progress; nil reports nothing.
	Logf func(format string, args ...any)
}

func (o Options) logf(format string, args ...any) {
	if o.Logf != nil {
		o.Logf(format, args...)
	}
}

func (o Options) requiredPlugins() string {
	if !o.RequirePlugin {
		return "  [plugins.\"io.containerd.nri.v1.nri\".default_validator]\n    enable = true\n"
	}
	return `  [plugins."io.containerd.nri.v1.nri".default_validator]
    enable = true
    required_plugins = ["jackfield"]
    tolerate_missing_plugins_annotation = "tolerate-missing-plugins.noderesource.dev"
`
}

// Cluster is a running cluster. Its methods may be called concurrently, except for Reboot, Close, and those
// that add or remove a node.
type Cluster struct {
	kit        *Kit
	opts       Options
	components []*node.Process
	node       *Node
	second     *Node // nil unless AddNode was called
}

// Patience is how long Wait waits for events that an idle machine delivers within seconds.
const Patience = 3 * time.Minute

// pollInterval is the time between two checks of Wait.
const pollInterval = 300 * time.Millisecond

// Start starts a cluster and waits until its node is ready. Only one cluster runs in a jail. The caller must
// call Close.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	if !jail.Inside() {
		return nil, fmt.Errorf("start cluster: not in a jail: %w", errdefs.ErrFailedPrecondition)
	}
	kit, err := kitFromEnv()
	if err != nil {
		return nil, err
	}
	c := &Cluster{kit: kit, opts: opts}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := addNodeAddress(); err != nil {
		return err
	}
	if err := writeCredentials(); err != nil {
		return err
	}
	c.opts.logf("starting the control plane of Kubernetes %s", c.kit.Version)
	if err := c.startControlPlane(ctx); err != nil {
		return err
	}
	c.opts.logf("starting a node with containerd %s", c.kit.Node.Versions[node.V24])
	if err := c.writeImages(); err != nil {
		return err
	}
	c.node = &Node{Name: nodeName, address: nodeAddress, cluster: c}
	if err := c.node.start(ctx); err != nil {
		return err
	}
	return c.Wait(ctx, "the service account of the namespace default exists", func(ctx context.Context) error {
		client, err := c.Client(TestClient)
		if err == nil {
			_, err = client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
		}
		return err
	})
}

// Close ends the nodes and the control plane. The jail removes what they leave.
func (c *Cluster) Close() error {
	c.second.powerOff()
	c.node.powerOff()
	for _, p := range slices.Backward(c.components) {
		p.Kill()
	}
	return nil
}

// Reboot cuts the first node's power and starts it again. The control plane continues to run. Reboot returns
// when containerd answers.
func (c *Cluster) Reboot(ctx context.Context) error {
	c.node.powerOff()
	// A machine has no cgroups when it starts. A kubelet inspects each one that it finds, for seconds.
	pods := filepath.Join(c.node.cgroup(), "kubepods")
	if err := waitFor(ctx, "the cgroups of pods are removed", func(context.Context) error { return jail.RemoveCgroup(pods) }); err != nil {
		return err
	}
	return c.node.powerOn(ctx)
}

// FirstNode returns the node that each cluster has.
func (c *Cluster) FirstNode() *Node { return c.node }

// Kit returns the programs of the cluster.
func (c *Cluster) Kit() *Kit { return c.kit }

// Kubectl runs kubectl as administrator and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", "kubectl", args...)
}

// KubectlInput is Kubectl with a text on standard input.
func (c *Cluster) KubectlInput(ctx context.Context, input string, args ...string) (string, error) {
	return c.run(ctx, input, "kubectl", args...)
}

// Create creates the objects of a manifest. `kubectl apply` takes three times the processor time.
func (c *Cluster) Create(ctx context.Context, manifest string) error {
	_, err := c.KubectlInput(ctx, manifest, "create", "--filename=-")
	return err
}

// Helm runs helm as administrator and returns its standard output.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	return c.run(ctx, "", "helm", args...)
}

// HelmInput is Helm with a text on standard input, for `--values=-`.
func (c *Cluster) HelmInput(ctx context.Context, input string, args ...string) (string, error) {
	return c.run(ctx, input, "helm", args...)
}

// Chart returns the directory of Jackfield's chart.
func (c *Cluster) Chart() string {
	return filepath.Join(c.kit.Checkout, "deploy", "helm", "jackfield")
}

// run runs a client of the API server. An error has its output.
func (c *Cluster) run(ctx context.Context, input, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.kit.Program(name), args...)
	// kubectl finds its plugins in PATH.
	path := c.kit.Bin + ":" + filepath.Dir(c.kit.Node.Commands["kubectl-jackfield"]) + ":" + os.Getenv("PATH")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+adminConfig, "HOME="+workDir, "PATH="+path, "GOGC=off") // they end soon
	cmd.Stdin = strings.NewReader(input)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s%s", name, strings.Join(args, " "), err, stderr.String(), stdout.String())
	}
	return stdout.String(), nil
}

// Wait calls f until it returns nil, for at most Patience. what says what f checks. Wait fails at once if the
// node or a component of the control plane has ended.
func (c *Cluster) Wait(ctx context.Context, what string, f func(context.Context) error) error {
	return waitFor(ctx, what, func(ctx context.Context) error {
		err := f(ctx)
		if ended := c.ended(); err != nil && ended != nil {
			return permanent{ended}
		}
		return err
	})
}

// permanent is an error that waiting does not change.
type permanent struct{ error }

func waitFor(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if end := (permanent{}); errors.As(err, &end) {
			return fmt.Errorf("wait until %s: %w", what, end.error)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w: %w", what, context.Cause(ctx), err)
		case <-time.After(pollInterval):
		}
	}
}

// ended returns an error if a component of the control plane, or a node, has ended.
func (c *Cluster) ended() error {
	running := slices.Clone(c.components)
	for _, n := range []*Node{c.node, c.second} {
		if n != nil && n.process != nil {
			running = append(running, n.process)
		}
	}
	for _, p := range running {
		select {
		case <-p.Done():
			return fmt.Errorf("process %d has ended: %w\n%s", p.PID(), errdefs.ErrUnavailable, node.Tail(p.Log(), 20))
		default:
		}
	}
	return nil
}
