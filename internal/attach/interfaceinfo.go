// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"encoding/json"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// ExtraKey is the key of device-info for information that the specification has no key for. The vswitch and
// pkg/resolve, for devices.json, read it.
const ExtraKey = "jackfield.dev/interface"

// interfaceInfo is what the device-info file says about the interface beyond its device.
type interfaceInfo struct {
	Network   string            `json:"network,omitempty"`
	MAC       string            `json:"mac,omitempty"`
	IPs       []string          `json:"ips,omitempty"`
	Gateway   []string          `json:"gateway,omitempty"`
	DNS       *DNS              `json:"dns,omitempty"`
	Bandwidth map[string]uint64 `json:"bandwidth,omitempty"`
	MTU       int               `json:"mtu,omitempty"`
	Queues    int               `json:"queues,omitempty"`
	Labels    []Label           `json:"labels,omitempty"`
}

// Label is a label of an interface.
type Label struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// DNS has the keys of dns in a result of CNI.
type DNS struct {
	Nameservers []string `json:"nameservers,omitempty"`
	Domain      string   `json:"domain,omitempty"`
	Search      []string `json:"search,omitempty"`
	Options     []string `json:"options,omitempty"`
}

// setInterfaceInfo writes n into the device-info.
func setInterfaceInfo(info *deviceinfo.Info, n interfaceInfo) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if info.Extra == nil {
		info.Extra = map[string]json.RawMessage{}
	}
	delete(info.Extra, ExtraKey)
	if string(raw) != "{}" {
		info.Extra[ExtraKey] = raw
	}
	return nil
}

// networkName returns the network for which this plugin wrote the device-info, or "".
func networkName(info *deviceinfo.Info) string {
	var n interfaceInfo
	if json.Unmarshal(info.Extra[ExtraKey], &n) != nil {
		return ""
	}
	return n.Network
}
