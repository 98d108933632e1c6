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

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/node"
)

// MultusMode is one of the two forms of Multus.
type MultusMode string

// The runtime runs the thin plugin alone. The shim of the thick plugin sends each request to a daemon.
const (
	ThinMultus  MultusMode = "multus"
	ThickMultus MultusMode = "multus-shim"
)

// MultusCache is the directory of Multus' records on a node.
const MultusCache = "/var/lib/cni/multus"

// MultusNetwork is the name of the pods' network while Multus attaches them.
const MultusNetwork = "multus-cni-network"

const (
	multusConfig    = "/etc/cni/net.d/00-multus.conflist"
	multusSocketDir = "/run/multus"
	multusDaemon    = configDir + "/multus-daemon.json"
	// daemonsConfig is the configuration that the daemon writes.
	daemonsConfig = "/etc/cni/net.d/00-multus.conf"
	// serviceAccountDir is the directory of a pod's service account, in the pod.
	serviceAccountDir = "/run/secrets/kubernetes.io/serviceaccount"

	networkDefinitions = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
  "spec": {"group": "k8s.cni.cncf.io", "scope": "Namespaced",
    "names": {"plural": "network-attachment-definitions", "singular": "network-attachment-definition", "kind": "NetworkAttachmentDefinition"},
    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
      "spec": {"type": "object", "properties": {"config": {"type": "string"}}}}}}}]}}`
)

// Multus is an installation of Multus on the first node.
type Multus struct {
	cluster *Cluster
	mode    MultusMode
	daemon  *node.Process // of the thick plugin
}

// InstallMultus makes Multus the network of the first node's pods. The runtime reads the configuration some moments
// later. clusterNetwork is the name of a network: with the path of a file, Multus 4.3 drops unknown keys.
func (c *Cluster) InstallMultus(ctx context.Context, mode MultusMode) (*Multus, error) {
	m := &Multus{cluster: c, mode: mode}
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
	program, err := os.ReadFile(filepath.Join(c.kit.Multus, string(mode)))
	if err != nil {
		return m, err
	}
	err = errors.Join(os.MkdirAll(MultusCache+"/results", 0o700), os.WriteFile(m.plugin(), program, 0o755))
	if err != nil {
		return m, err
	}
	if mode == ThickMultus {
		return m, m.startDaemon(ctx)
	}
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": %q, "kubeconfig": %q,
  "clusterNetwork": "pods", "confDir": "/etc/cni/net.d", "binDir": %q,
  "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}]}`, MultusNetwork, mode, adminConfig, cniBin)
	return m, os.WriteFile(multusConfig, []byte(config), 0o600)
}

// plugin returns the path of the program that the runtime runs.
func (m *Multus) plugin() string { return filepath.Join(cniBin, string(m.mode)) }

// startDaemon starts the daemon and waits for the configuration that it writes last. Only with multusConfigFile "auto"
// does the daemon of Multus 4.3 keep running: with a file, it ends after its start. The generated configuration has the
// path of the cluster's network. The keys of the daemon's own file take precedence over it, and name the network.
func (m *Multus) startDaemon(ctx context.Context) error {
	if err := m.writeServiceAccount(ctx); err != nil {
		return err
	}
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "logToStderr": true, "logLevel": "verbose", "socketDir": %q,
  "cniConfigDir": "/etc/cni/net.d", "multusAutoconfigDir": "/etc/cni/net.d", "multusConfigFile": "auto",
  "clusterNetwork": "pods", "confDir": "/etc/cni/net.d", "binDir": %q}`, multusSocketDir, cniBin)
	if err := os.WriteFile(multusDaemon, []byte(config), 0o600); err != nil {
		return err
	}
	// The daemon uses the node's directories and processes, like the pod of Multus' DaemonSet.
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(m.cluster.node.process.PID()), "--mount", "--pid",
		filepath.Join(m.cluster.kit.Multus, "multus-daemon"), "-config", multusDaemon)
	cmd.Env = append(os.Environ(), "KUBERNETES_SERVICE_HOST="+nodeAddress, "KUBERNETES_SERVICE_PORT=6443",
		"MULTUS_NODE_NAME="+nodeName)
	var err error
	if m.daemon, err = node.StartProcess(cmd, logFile("multus-daemon")); err != nil {
		return err
	}
	err = m.cluster.Wait(ctx, "Multus' daemon serves", func(context.Context) error {
		_, err := os.Stat(daemonsConfig)
		return err
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, m.DaemonLog())
	}
	return err
}

// writeServiceAccount creates a service account with all rights for the daemon, and writes its token to the path that
// a pod of Multus' DaemonSet has.
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

// DaemonLog returns the log of the daemon, or "".
func (m *Multus) DaemonLog() string {
	if m.daemon == nil {
		return ""
	}
	return m.daemon.Log()
}

// Unconfigure makes the runtime use the network "pods" again. Multus' programs stay for pods that end later. The daemon
// removes its own configuration when it ends.
func (m *Multus) Unconfigure(ctx context.Context) error {
	switch {
	case m.mode == ThinMultus:
		return os.Remove(multusConfig)
	case m.daemon == nil:
		return nil
	}
	// nsenter and the daemon are one process group.
	if err := unix.Kill(-m.daemon.PID(), unix.SIGTERM); err != nil {
		return err
	}
	return m.cluster.Wait(ctx, "Multus' daemon ends", func(context.Context) error {
		if _, err := os.Stat(daemonsConfig); err == nil {
			return errors.New("its configuration exists")
		}
		return nil
	})
}

// Remove removes Multus, with all NetworkAttachmentDefinitions.
func (m *Multus) Remove(ctx context.Context) error {
	_, err := m.cluster.Kubectl(ctx, "delete", "customresourcedefinition", "network-attachment-definitions.k8s.cni.cncf.io")
	return errors.Join(err, os.Remove(m.plugin()), os.RemoveAll(m.cluster.HostPath(multusSocketDir)),
		os.RemoveAll(m.cluster.HostPath(serviceAccountDir)))
}
