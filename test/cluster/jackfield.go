// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Namespace is the namespace that Jackfield is installed in, and the labels of its pods.
const (
	Namespace = "jackfield-system"
	Release   = "jackfield"
)

// InstallJackfield installs the chart with values, as docs/how-to/install-helm.md says, and waits until the
// plugin is registered.
func (c *Cluster) InstallJackfield(ctx context.Context, values string) error {
	if err := c.Apply(ctx, `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+Namespace+`",
  "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`); err != nil {
		return err
	}
	if _, err := c.HelmInput(ctx, values, "install", Release, c.Chart(), "--namespace", Namespace, "--values=-"); err != nil {
		return err
	}
	return c.WaitJackfield(ctx)
}

// WaitJackfield waits until the DaemonSet has its current version on the node.
func (c *Cluster) WaitJackfield(ctx context.Context) error {
	_, err := c.Kubectl(ctx, "--namespace", Namespace, "rollout", "status", "daemonset/"+Release, "--timeout="+Patience.String())
	if err == nil {
		return nil
	}
	pods, _ := c.Kubectl(ctx, "--namespace", Namespace, "describe", "pods")
	return fmt.Errorf("%w\n%s", err, pods)
}

// Jackfield runs the command jackfield in the plugin's pod and returns its standard output.
func (c *Cluster) Jackfield(ctx context.Context, args ...string) (string, error) {
	return c.Kubectl(ctx, append([]string{"--namespace", Namespace, "exec", "daemonset/" + Release, "--container", "jackfield-nri", "--", "jackfield"}, args...)...)
}

// Events returns the messages of a pod's events, one a line.
func (c *Cluster) Events(ctx context.Context, namespace, pod string) (string, error) {
	return c.Kubectl(ctx, "--namespace", namespace, "get", "events", "--field-selector=involvedObject.name="+pod,
		"--output=jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}")
}

// WaitEvent waits until a pod's events contain a text.
func (c *Cluster) WaitEvent(ctx context.Context, namespace, pod, text string) error {
	return c.Wait(ctx, fmt.Sprintf("an event of pod %s/%s has %q", namespace, pod, text), func(ctx context.Context) error {
		events, err := c.Events(ctx, namespace, pod)
		if err == nil && !strings.Contains(events, text) {
			err = errors.New(events)
		}
		return err
	})
}

// Kubeconfig returns the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() ([]byte, error) { return os.ReadFile(adminConfig) }
