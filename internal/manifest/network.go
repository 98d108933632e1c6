// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/diag"
	"github.com/jackfield/jackfield/pkg/policy"
)

// Network is a NetworkAttachmentDefinition whose configuration asks jackfield-cni for ports of vswitches.
type Network struct {
	Namespace, Name string
	// Ports have no bridge where the configuration leaves it to the vswitch.
	Ports []policy.Port
}

// networkPlugin is the part of a CNI plugin's configuration that names a port.
type networkPlugin struct {
	Type    string `json:"type"`
	Vswitch string `json:"vswitch"`
	Bridge  string `json:"bridge"`
	VLAN    int    `json:"vlan"`
}

// ParseNetworks returns the networks with ports in a manifest; messages name the file. Other objects are
// skipped.
func ParseNetworks(file string, data []byte) ([]Network, error) {
	docs, err := DecodeYAML(data)
	if err != nil {
		return nil, fmt.Errorf("read manifest %q: %w: %w", file, err, errdefs.ErrInvalidArgument)
	}
	var all []Network
	for ; len(docs) > 0; docs = docs[1:] {
		var o struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
			Spec  struct {
				Config string `json:"config"`
			} `json:"spec"`
		}
		// Parse reports objects that are invalid. Other kinds have other types.
		if err := json.Unmarshal(docs[0], &o); err != nil {
			continue
		}
		docs = append(docs, o.Items...)
		if o.Kind != "NetworkAttachmentDefinition" {
			continue
		}
		ports, err := parsePorts(o.Spec.Config)
		if err != nil {
			return nil, fmt.Errorf("read manifest %q: %s %s: spec.config: %w: %w", file, o.Kind, diag.Quote(o.Metadata.Name, diag.Most), err, errdefs.ErrInvalidArgument)
		}
		if len(ports) > 0 {
			all = append(all, Network{o.Metadata.Namespace, o.Metadata.Name, ports})
		}
	}
	return all, nil
}

// parsePorts returns the ports in a network's configuration: a plugin, or a list of them. Without a
// configuration the node has it in a file.
func parsePorts(text string) ([]policy.Port, error) {
	if text == "" {
		return nil, nil
	}
	var config struct {
		networkPlugin
		Plugins []networkPlugin `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return nil, err
	}
	var ports []policy.Port
	for _, p := range append(config.Plugins, config.networkPlugin) {
		if p.Type == "jackfield-cni" && p.Vswitch != "" {
			ports = append(ports, policy.Port{Switch: p.Vswitch, Bridge: p.Bridge, VLAN: p.VLAN})
		}
	}
	return ports, nil
}
