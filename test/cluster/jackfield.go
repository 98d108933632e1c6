// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestClient is the name of the tests' own client in the audit log.
const TestClient = "kube.test"

// Namespace is the namespace that Jackfield is installed in, and the labels of its pods.
const (
	Namespace = "jackfield-system"
	Release   = "jackfield"
)

// InstallJackfield installs the chart with values, as docs/how-to/install-helm.md says, and waits until the
// plugin is registered.
func (c *Cluster) InstallJackfield(ctx context.Context, values string) error {
	const namespace = `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "` + Namespace + `",
  "labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}`
	if _, err := c.KubectlInput(ctx, namespace, "apply", "--filename=-"); err != nil { // it outlives an uninstallation
		return err
	}
	if _, err := c.HelmInput(ctx, values, "install", Release, c.Chart(), "--namespace", Namespace, "--values=-"); err != nil {
		return err
	}
	return c.WaitJackfield(ctx)
}

// TagImage gives Jackfield's image on the first node another tag.
func (c *Cluster) TagImage(ctx context.Context, tag string) error {
	const name = "localhost/jackfield/jackfield:"
	return c.node.ctr(ctx, "images", "tag", "--force", name+"devel", name+tag)
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
	client, err := c.Client(TestClient)
	if err != nil {
		return "", err
	}
	list, err := client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod})
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, e := range list.Items {
		fmt.Fprintf(&text, "%s: %s\n", e.Reason, e.Message)
	}
	return text.String(), nil
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

// Client returns an administrator's client of the API server, with a name in the audit log. Checks that are
// repeated use it, because each start of kubectl takes a tenth of a second of processor time.
func (c *Cluster) Client(name string) (*kubernetes.Clientset, error) {
	kubeconfig, err := c.Kubeconfig()
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = name
	return kubernetes.NewForConfig(config)
}

// Kubeconfig returns the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() ([]byte, error) { return os.ReadFile(adminConfig) }
