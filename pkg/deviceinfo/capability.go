// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/jsontree"
)

// CapabilityKey is the CNI capability by which a plugin learns the path of the
// attachment's device-info file (§5.1).
const CapabilityKey = "CNIDeviceInfoFile"

// CapabilityArgs returns the arguments that an NPWG implementation passes to libcni as
// RuntimeConf.CapabilityArgs (§5.1.1). libcni passes them on to the plugins that declare
// the capability. path is that of [CNIDir.Path].
func CapabilityArgs(path string) map[string]any {
	return map[string]any{CapabilityKey: path}
}

// RuntimeConfig returns the runtimeConfig map with the capability argument as JSON, for
// callers that build a plugin's configuration without libcni:
//
//	{"runtimeConfig":{"CNIDeviceInfoFile":"/var/run/…"}}
func RuntimeConfig(path string) json.RawMessage {
	text, _ := json.Marshal(map[string]any{"runtimeConfig": CapabilityArgs(path)}) // strings always encode
	return text
}

// decodeConf reads keys of a CNI configuration; other keys may have any value. Keys are compared with their case, as CNI
// plugins do.
func decodeConf(conf []byte, to any) error {
	if err := (jsontree.Decoder{}).Unmarshal(string(conf), to); err != nil {
		return fmt.Errorf("read CNI configuration: %w", err)
	}
	return nil
}

// declaresCapability reports whether a network configuration, or one of the
// plugins in a list of them, declares the capability (§5.1.1). The error for another
// document is errdefs.ErrInvalidArgument.
func declaresCapability(conf []byte) (bool, error) {
	type plugin struct {
		Capabilities map[string]bool `json:"capabilities"`
	}
	var c struct {
		Capabilities map[string]bool `json:"capabilities"`
		Plugins      []plugin        `json:"plugins"`
	}
	if err := decodeConf(conf, &c); err != nil {
		return false, err
	}
	return c.Capabilities[CapabilityKey] || slices.ContainsFunc(c.Plugins, func(p plugin) bool { return p.Capabilities[CapabilityKey] }), nil
}

// SetCapability sets the argument in the configuration of one plugin that declares the
// capability, as libcni does before it runs the plugin (§5.1.1). Other keys and arguments
// are kept. The configuration of a plugin that does not declare the capability is
// returned unchanged.
func SetCapability(conf []byte, path string) ([]byte, error) {
	declared, err := declaresCapability(conf)
	if err != nil || !declared {
		return conf, err
	}
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(conf, &whole); err != nil {
		return nil, err
	}
	if _, list := whole["plugins"]; list {
		return nil, fmt.Errorf("set %s: this is a list of plugins, not the configuration of one: %w", CapabilityKey, errdefs.ErrInvalidArgument)
	}
	arguments := map[string]json.RawMessage{}
	if before, ok := whole["runtimeConfig"]; ok && string(before) != "null" {
		if err := json.Unmarshal(before, &arguments); err != nil {
			return nil, fmt.Errorf("read CNI configuration: runtimeConfig: %w: %w", err, errdefs.ErrInvalidArgument)
		}
	}
	arguments[CapabilityKey], _ = json.Marshal(path) // a string always encodes
	if whole["runtimeConfig"], err = json.Marshal(arguments); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}

// CapabilityPath returns the path in the configuration that a CNI plugin reads from its
// standard input (§5.1.2); ok is false without the argument. [CNIDir.File] takes the path.
func CapabilityPath(stdin []byte) (path string, ok bool, err error) {
	var c struct {
		RuntimeConfig map[string]*jsontree.Node `json:"runtimeConfig"`
	}
	if err := decodeConf(stdin, &c); err != nil {
		return "", false, err
	}
	n, ok := c.RuntimeConfig[CapabilityKey]
	switch {
	case !ok:
		return "", false, nil
	case n != nil && n.Kind == jsontree.String && n.Text != "":
		return n.Text, true, nil
	}
	found := "null"
	if n != nil {
		found = excerpt(string(stdin[n.Start:n.End]))
	}
	return "", false, fmt.Errorf("read runtimeConfig.%s: invalid value %s: must be the path of a file (%s): %w",
		CapabilityKey, found, inSection("5.1"), errdefs.ErrInvalidArgument)
}
