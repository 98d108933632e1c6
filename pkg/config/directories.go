// SPDX-License-Identifier: Apache-2.0

package config

import "path"

// Directory is a directory of the host that the configuration names.
type Directory struct {
	Path string
	Use  string // what it is for, in words for people
}

// Directories are the directories of the host that the plugin looks into, each once,
// in a fixed order. specDirs, when not nil, take the place of the configuration's.
func (c *Config) Directories(specDirs []string) []Directory {
	if specDirs == nil {
		specDirs = c.CDI.SpecDirs
	}
	var out []Directory
	seen := make(map[string]bool)
	add := func(use string, dirs ...string) {
		for _, dir := range dirs {
			if dir != "" && !seen[dir] {
				seen[dir] = true
				out = append(out, Directory{dir, use})
			}
		}
	}
	// Below it lies a mount of its own.
	add("state", c.StateDir, path.Join(c.StateDir, "containers"))
	add("socket root", c.Sockets.Roots...)
	add("CDI", specDirs...)
	add("device-info of networks", c.DeviceInfo.CNIDir)
	add("device-info of device plugins", c.DeviceInfo.DPDir)
	add("Multus' cache", c.Multus.CacheDir)
	add("hooks.d", c.Hooks.Dirs...)
	if s := c.Kubelet.PodResourcesSocket; s != "" {
		add("the kubelet's socket", path.Dir(s))
	}
	if f := c.AuditLog.File; f != "" {
		add("audit file", path.Dir(f))
	}
	return out
}
