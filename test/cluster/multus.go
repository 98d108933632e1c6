// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// MultusCache is the directory of Multus' records on a node.
const MultusCache = "/var/lib/cni/multus"

// MultusNetwork is the name of the pods' network while Multus attaches them.
const MultusNetwork = "multus-cni-network"

const (
	multusSocketDir = "/run/multus"
	multusConfig    = "/etc/cni/net.d/00-multus.conflist"
	multusDaemon    = configDir + "/multus-daemon.json"

	networkDefinitions = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
  "spec": {"group": "k8s.cni.cncf.io", "scope": "Namespaced",
    "names": {"plural": "network-attachment-definitions", "singular": "network-attachment-definition", "kind": "NetworkAttachmentDefinition"},
    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
      "spec": {"type": "object", "properties": {"config": {"type": "string"}}}}}}}]}}`
)

// Multus is an installation of Multus on the first node.
type Multus struct {
	cluster *Cluster
	plugin  string
	daemon  *exec.Cmd // nil for the thin plugin
}

// InstallMultus makes Multus the network of the first node's pods: the thin plugin, or the daemon with its shim.
// The runtime uses it some moments later. With the path of a file as clusterNetwork, Multus 4.3 drops keys that
// it does not know; with the name of a network, as here, it does not.
func (c *Cluster) InstallMultus(ctx context.Context, withDaemon bool) (*Multus, error) {
	m := &Multus{cluster: c, plugin: "multus"}
	if _, err := c.KubectlInput(ctx, networkDefinitions, "apply", "--filename=-"); err != nil {
		return m, err
	}
	err := c.Wait(ctx, "the API server knows networks", func(ctx context.Context) error {
		_, err := c.Kubectl(ctx, "get", "network-attachment-definitions")
		return err
	})
	if err != nil {
		return m, err
	}
	more := ""
	if withDaemon {
		m.plugin, more = "multus-shim", `, "daemonSocketDir": "`+multusSocketDir+`"`
		if err := m.startDaemon(ctx); err != nil {
			return m, err
		}
	}
	program, err := os.ReadFile(filepath.Join(c.kit.Multus, m.plugin))
	if err != nil {
		return m, err
	}
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": %q, "kubeconfig": %q,
  "clusterNetwork": "pods", "confDir": "/etc/cni/net.d", "binDir": %q, "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}%s}]}`,
		MultusNetwork, m.plugin, adminConfig, cniBin, more)
	return m, errors.Join(os.MkdirAll(MultusCache+"/results", 0o700), os.WriteFile(filepath.Join(cniBin, m.plugin), program, 0o755),
		os.WriteFile(multusConfig, []byte(config), 0o600))
}

// serviceAccountDir is where a program of a pod finds the account of its pod.
const serviceAccountDir = "/run/secrets/kubernetes.io/serviceaccount"

// writeServiceAccount creates the daemon's account, which has all rights, as in a pod of Multus' DaemonSet.
func (m *Multus) writeServiceAccount(ctx context.Context) error {
	const account = `{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "multus", "namespace": "kube-system"}}
---
{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "multus"},
 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
 "subjects": [{"kind": "ServiceAccount", "name": "multus", "namespace": "kube-system"}]}`
	if _, err := m.cluster.KubectlInput(ctx, account, "apply", "--filename=-"); err != nil {
		return err
	}
	token, err := m.cluster.Kubectl(ctx, "--namespace", "kube-system", "create", "token", "multus")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(filepath.Join(configDir, "ca.crt"))
	if err != nil {
		return err
	}
	dir := m.cluster.HostPath(serviceAccountDir)
	return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/ca.crt", authority, 0o600),
		os.WriteFile(dir+"/token", []byte(strings.TrimSpace(token)), 0o600))
}

// startDaemon starts the daemon and waits for its socket.
func (m *Multus) startDaemon(ctx context.Context) error {
	if err := m.writeServiceAccount(ctx); err != nil {
		return err
	}
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "logToStderr": true, "logLevel": "error", "cniConfigDir": "/etc/cni/net.d",
  "multusConfigFile": "/dev/null", "socketDir": %q}`, multusSocketDir)
	log, err := os.Create(logFile("multus-daemon"))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := errors.Join(os.WriteFile(multusDaemon, []byte(config), 0o600), os.MkdirAll(m.cluster.HostPath(multusSocketDir), 0o700)); err != nil {
		return err
	}
	// The daemon uses the node's directories, as if in a pod with all of them.
	m.daemon = exec.Command("nsenter", "--target", strconv.Itoa(m.cluster.node.process.PID()), "--mount", filepath.Join(m.cluster.kit.Multus, "multus-daemon"), "-config", multusDaemon)
	m.daemon.Stdout, m.daemon.Stderr = log, log
	m.daemon.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST="+nodeAddress, "KUBERNETES_SERVICE_PORT=6443", "MULTUS_NODE_NAME="+nodeName)
	if err := m.daemon.Start(); err != nil {
		m.daemon = nil
		return err
	}
	return m.cluster.Wait(ctx, "Multus' daemon listens", func(context.Context) error {
		_, err := os.Stat(m.cluster.HostPath(multusSocketDir + "/multus.sock"))
		if err != nil {
			text, _ := os.ReadFile(log.Name())
			err = fmt.Errorf("%w: %s", err, text)
		}
		return err
	})
}

// Unconfigure makes the runtime use the network "pods" again. Multus' programs stay for pods that end later.
func (m *Multus) Unconfigure() error { return os.Remove(multusConfig) }

// Remove removes Multus, with all NetworkAttachmentDefinitions.
func (m *Multus) Remove(ctx context.Context) error {
	_, err := m.cluster.Kubectl(ctx, "delete", "customresourcedefinition", "network-attachment-definitions.k8s.cni.cncf.io")
	if m.daemon != nil {
		err = errors.Join(err, m.daemon.Process.Kill())
		_ = m.daemon.Wait() // it was killed
		err = errors.Join(err, os.RemoveAll(m.cluster.HostPath(multusSocketDir)), os.RemoveAll(m.cluster.HostPath(serviceAccountDir)))
	}
	return errors.Join(err, os.Remove(filepath.Join(cniBin, m.plugin)))
}
