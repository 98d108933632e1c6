// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
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
	var arguments, conf objectEncoder
	arguments.addRequired(CapabilityKey, path)
	conf.addMember("runtimeConfig", arguments.closeObject(nil))
	return conf.closeObject(nil)
}

// pluginConf is a CNI network configuration. The keys are compared with their case, as
// CNI plugins do.
type pluginConf map[string]json.RawMessage

func parsePluginConf(conf []byte) (pluginConf, error) {
	var c pluginConf
	if err := json.Unmarshal(conf, &c); err != nil {
		return nil, fmt.Errorf("read CNI configuration: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return c, nil
}

// decode decodes the value of a key into to; a missing key leaves to unchanged.
func (c pluginConf) decode(key string, to any) error {
	raw, ok := c[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("read CNI configuration: %s: %w: %w", key, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// DeclaresCapability reports whether a network configuration, or one of the
// plugins in a list of them, declares the capability (§5.1.1). The error for another
// document is errdefs.ErrInvalidArgument.
func DeclaresCapability(conf []byte) (bool, error) {
	c, err := parsePluginConf(conf)
	if err != nil {
		return false, err
	}
	var plugins []pluginConf
	if err := c.decode("plugins", &plugins); err != nil {
		return false, err
	}
	for _, p := range append([]pluginConf{c}, plugins...) {
		var capabilities map[string]bool
		if err := p.decode("capabilities", &capabilities); err != nil {
			return false, err
		}
		if capabilities[CapabilityKey] {
			return true, nil
		}
	}
	return false, nil
}

// SetCapability sets the argument in the configuration of one plugin that declares the
// capability, as libcni does before it runs the plugin (§5.1.1). Other keys and arguments
// are kept. The configuration of a plugin that does not declare the capability is
// returned unchanged.
func SetCapability(conf []byte, path string) ([]byte, error) {
	declared, err := DeclaresCapability(conf)
	if err != nil || !declared {
		return conf, err
	}
	all, err := parsePluginConf(conf)
	if err != nil {
		return nil, err
	}
	if _, list := all["plugins"]; list {
		return nil, fmt.Errorf("set %s: this is a list of plugins, not the configuration of one: %w", CapabilityKey, errdefs.ErrInvalidArgument)
	}
	var runtime map[string]json.RawMessage
	if err := all.decode("runtimeConfig", &runtime); err != nil {
		return nil, err
	}
	delete(runtime, CapabilityKey)
	var arguments, out objectEncoder
	arguments.addRequired(CapabilityKey, path)
	all["runtimeConfig"] = arguments.closeObject(runtime)
	return out.closeObject(all), nil
}

// CapabilityPath returns the path in the configuration that a CNI plugin reads from its
// standard input (§5.1.2); ok is false without the argument. [CNIDir.File] takes the path.
func CapabilityPath(stdin []byte) (path string, ok bool, err error) {
	c, err := parsePluginConf(stdin)
	if err != nil {
		return "", false, err
	}
	var runtime map[string]json.RawMessage
	if err := c.decode("runtimeConfig", &runtime); err != nil {
		return "", false, err
	}
	raw, ok := runtime[CapabilityKey]
	if !ok {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &path); err != nil || path == "" {
		return "", false, fmt.Errorf("read runtimeConfig.%s: found %s: must be the path of a file (%s): %w",
			CapabilityKey, excerpt(string(raw)), inSection("5.1"), errdefs.ErrInvalidArgument)
	}
	return path, true, nil
}
