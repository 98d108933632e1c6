// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
)

// CapabilityKey is the CNI capability by which a plugin learns the path of the
// attachment's device-info file (§5.1).
const CapabilityKey = "CNIDeviceInfoFile"

// CapabilityArgs are the arguments an NPWG implementation hands to libcni, as
// its RuntimeConf.CapabilityArgs (§5.1.1). libcni gives them to the plugins that
// declare the capability. path is that of [CNIDir.Path].
func CapabilityArgs(path string) map[string]any {
	return map[string]any{CapabilityKey: path}
}

// RuntimeConfig is the runtimeConfig map with the capability argument as JSON,
// for those who put together a plugin's configuration themselves:
//
//	{"runtimeConfig":{"CNIDeviceInfoFile":"/var/run/…"}}
func RuntimeConfig(path string) json.RawMessage {
	w := &writer{}
	w.open()
	w.key("runtimeConfig")
	w.open()
	w.text(CapabilityKey, path, true)
	w.close(nil)
	w.close(nil)
	return w.Bytes()
}

// pluginConf is what of a CNI network configuration matters here. Keys are compared
// as the plugins do that read it next, letter by letter.
type pluginConf map[string]json.RawMessage

func readPluginConf(conf []byte) (pluginConf, error) {
	var c pluginConf
	if err := json.Unmarshal(conf, &c); err != nil {
		return nil, fmt.Errorf("read CNI configuration: %w: %w", err, errdefs.ErrInvalidArgument)
	}
	return c, nil
}

// into reads the value of a key; what is missing leaves to as it is.
func (c pluginConf) into(key string, to any) error {
	raw, ok := c[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return fmt.Errorf("read CNI configuration: %s: %w: %w", key, err, errdefs.ErrInvalidArgument)
	}
	return nil
}

// declares reports whether the configuration itself declares the capability.
func (c pluginConf) declares() (bool, error) {
	var capabilities map[string]bool
	err := c.into("capabilities", &capabilities)
	return err == nil && capabilities[CapabilityKey], err
}

// DeclaresCapability reports whether a network configuration, or one of the
// plugins in a list of them, declares the capability (§5.1.1). What is not such a
// configuration is errdefs.ErrInvalidArgument.
func DeclaresCapability(conf []byte) (bool, error) {
	c, err := readPluginConf(conf)
	if err != nil {
		return false, err
	}
	var plugins []pluginConf
	if err := c.into("plugins", &plugins); err != nil {
		return false, err
	}
	for _, p := range append([]pluginConf{c}, plugins...) {
		if declared, err := p.declares(); err != nil || declared {
			return declared, err
		}
	}
	return false, nil
}

// SetCapability sets the argument in the configuration of one plugin that
// declares the capability, as libcni does before it runs the plugin (§5.1.1).
// Other keys, and other arguments, are kept. The configuration of a plugin that
// does not declare it is returned unchanged.
func SetCapability(conf []byte, path string) ([]byte, error) {
	declared, err := DeclaresCapability(conf)
	if err != nil || !declared {
		return conf, err
	}
	all, err := readPluginConf(conf)
	if err != nil {
		return nil, err
	}
	var runtime map[string]json.RawMessage
	if _, list := all["plugins"]; list {
		return nil, fmt.Errorf("set %s: this is a list of plugins, not the configuration of one: %w", CapabilityKey, errdefs.ErrInvalidArgument)
	}
	if err := all.into("runtimeConfig", &runtime); err != nil {
		return nil, err
	}
	if runtime == nil {
		runtime = map[string]json.RawMessage{}
	}
	w := &writer{}
	w.string(path)
	runtime[CapabilityKey] = bytes.Clone(w.Bytes())
	if all["runtimeConfig"], err = json.Marshal(runtime); err != nil {
		return nil, fmt.Errorf("set %s: %w", CapabilityKey, err)
	}
	out, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("set %s: %w", CapabilityKey, err)
	}
	return out, nil
}

// CapabilityPath is the path that a CNI plugin finds in the configuration on its
// standard input (§5.1.2); ok is false when there is none. Hand it to
// [CNIDir.File].
func CapabilityPath(stdin []byte) (path string, ok bool, err error) {
	c, err := readPluginConf(stdin)
	if err != nil {
		return "", false, err
	}
	var runtime map[string]json.RawMessage
	if err := c.into("runtimeConfig", &runtime); err != nil {
		return "", false, err
	}
	raw, ok := runtime[CapabilityKey]
	if !ok {
		return "", false, nil
	}
	if err := json.Unmarshal(raw, &path); err != nil || path == "" {
		return "", false, fmt.Errorf("read runtimeConfig.%s: found %s, want the path of a file (Device Information Specification %s, §5.1): %w",
			CapabilityKey, excerpt(string(raw)), Version110, errdefs.ErrInvalidArgument)
	}
	return path, true, nil
}
