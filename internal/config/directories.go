// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"path"
	"slices"

	"github.com/jackfield/jackfield/internal/host/dircheck"
)

// Directories returns the host directories that the plugin uses, without duplicates and in a fixed
// order. specDirs, if not nil, replaces the configuration's list.
func (c *Config) Directories(specDirs []string) []dircheck.Directory {
	if specDirs == nil {
		specDirs = c.CDI.SpecDirs
	}
	var out []dircheck.Directory
	seen := make(map[string]bool)
	add := func(use string, dirs ...string) {
		for _, dir := range dirs {
			if dir != "" && !seen[dir] {
				seen[dir] = true
				out = append(out, dircheck.Directory{Path: dir, Use: use})
			}
		}
	}
	// containers/ is a separate mount, so it can hang separately.
	add("state", c.StateDir, path.Join(c.StateDir, "containers"))
	add("socket root", c.Sockets.Roots...)
	for _, name := range slices.Sorted(maps.Keys(c.Sockets.Named)) {
		add("named sockets", path.Dir(c.Sockets.Named[name].Path))
	}
	add("CDI", specDirs...)
	add("device-info of networks", c.DeviceInfo.CNIDir)
	add("device-info of device plugins", c.DeviceInfo.DPDir)
	add("Multus' cache", c.Multus.CacheDir)
	add("hooks.d", c.Hooks.Dirs...)
	if s := c.Kubelet.PodResourcesSocket; s != "" {
		add("the kubelet's socket", path.Dir(s))
	}
	if s := c.Kubelet.PodsSocket; s != "" {
		add("the kubelet's Pods API", path.Dir(s))
	}
	add("the kubelet's plugins", c.Kubelet.PluginsDir)
	if f := c.AuditLog.File; f != "" {
		add("audit file", path.Dir(f))
	}
	return out
}
