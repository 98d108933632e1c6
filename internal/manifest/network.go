// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/jackfield/jackfield/pkg/policy"
)

const networkKind = "NetworkAttachmentDefinition"

// networkPlugin is the part of a CNI plugin's configuration that names a port.
type networkPlugin struct {
	Type    string `json:"type"`
	Vswitch string `json:"vswitch"`
	Bridge  string `json:"bridge"`
	VLAN    int    `json:"vlan"`
}

// addNetwork adds a NetworkAttachmentDefinition if its configuration, a plugin or a list of them, asks jackfield-cni for
// ports of vswitches. Without a configuration the node has it in a file.
func (o *Objects) addNetwork(data json.RawMessage, x *object) error {
	var network struct{ Spec struct{ Config string } }
	if err := json.Unmarshal(data, &network); err != nil {
		return fmt.Errorf("%s: %w", x.title(), err)
	}
	var config struct {
		networkPlugin
		Plugins []networkPlugin `json:"plugins"`
	}
	if err := json.Unmarshal([]byte(cmp.Or(network.Spec.Config, "{}")), &config); err != nil {
		return fmt.Errorf("%s: spec.config: %w", x.title(), err)
	}
	var ports []policy.Port
	for _, p := range append(config.Plugins, config.networkPlugin) {
		if p.Type == "jackfield-cni" && p.Vswitch != "" {
			ports = append(ports, policy.Port{Switch: p.Vswitch, Bridge: p.Bridge, VLAN: p.VLAN})
		}
	}
	if len(ports) > 0 {
		o.Networks[cmp.Or(x.Metadata.Namespace, o.namespace)+"/"+x.Metadata.Name] = ports
	}
	return nil
}
