// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// MultusCache is the directory of Multus' records on a node.
const MultusCache = "/var/lib/cni/multus"

// MultusNetwork is the name of the pods' network while Multus attaches them.
const MultusNetwork = "multus-cni-network"

const (
	multusConfig = "/etc/cni/net.d/00-multus.conflist"

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
}

// InstallMultus makes Multus the network of the first node's pods, by its thin plugin.
// The runtime uses it some moments later. With the path of a file as clusterNetwork, Multus 4.3 drops keys that
// it does not know; with the name of a network, as here, it does not.
func (c *Cluster) InstallMultus(ctx context.Context) (*Multus, error) {
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
	program, err := os.ReadFile(filepath.Join(c.kit.Multus, m.plugin))
	if err != nil {
		return m, err
	}
	config := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": %q, "plugins": [{"type": %q, "kubeconfig": %q,
  "clusterNetwork": "pods", "confDir": "/etc/cni/net.d", "binDir": %q, "capabilities": {"CNIDeviceInfoFile": true, "deviceID": true}}]}`,
		MultusNetwork, m.plugin, adminConfig, cniBin)
	return m, errors.Join(os.MkdirAll(MultusCache+"/results", 0o700), os.WriteFile(filepath.Join(cniBin, m.plugin), program, 0o755),
		os.WriteFile(multusConfig, []byte(config), 0o600))
}

// Unconfigure makes the runtime use the network "pods" again. Multus' programs stay for pods that end later.
func (m *Multus) Unconfigure() error { return os.Remove(multusConfig) }

// Remove removes Multus, with all NetworkAttachmentDefinitions.
func (m *Multus) Remove(ctx context.Context) error {
	_, err := m.cluster.Kubectl(ctx, "delete", "customresourcedefinition", "network-attachment-definitions.k8s.cni.cncf.io")
	return errors.Join(err, os.Remove(filepath.Join(cniBin, m.plugin)))
}
