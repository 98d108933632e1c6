// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

// criTables are containerd's tables with the CRI settings, for configuration version 3 and later,
// version 2, and version 1.
var criTables = []string{"io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri"}

// defaultCDIDirs are the defaults of containerd and CRI-O.
var defaultCDIDirs = []string{"/etc/cdi", "/var/run/cdi"}

// CDI locates the CDI files that a runtime reads.
type CDI struct {
	Dirs   []string // in ascending priority
	Source Setting  // sets Dirs; unset for the runtime's default
}

// CDI returns the directories in which containerd reads CDI files. on is false if it injects no CDI
// devices, or if that depends on its version: CDI is off by default in 1.7, and on in 2.0 and
// later.
func (c *Containerd) CDI() (cdi CDI, on bool) {
	on = c.version > 2
	cdi.Dirs = defaultCDIDirs
	for _, table := range criTables {
		if dirs := c.Get("plugins", table, "cdi_spec_dirs"); dirs.IsSet() {
			cdi, on = CDI{dirs.List, dirs}, true
		}
		switch enabled := c.Get("plugins", table, "enable_cdi"); {
		case enabled.IsNot("true"):
			return cdi, false
		case enabled.IsSet():
			on = true
		}
	}
	return cdi, on
}

// CDI returns the directories in which CRI-O reads CDI files. on is false if it injects no CDI
// devices.
func (c *CRIO) CDI() (cdi CDI, on bool) {
	if dirs := c.Get("crio", "runtime", "cdi_spec_dirs"); dirs.IsSet() {
		return CDI{dirs.List, dirs}, len(dirs.List) > 0
	}
	return CDI{Dirs: defaultCDIDirs}, true
}

// CNIConfDir returns the directory in which containerd or CRI-O reads CNI configuration files.
func CNIConfDir(containerd, crio Settings) string {
	for _, table := range criTables {
		if dir := containerd.Get("plugins", table, "cni", "conf_dir"); dir.IsSet() {
			return dir.Value
		}
	}
	if dir := crio.Get("crio", "network", "network_dir"); dir.IsSet() {
		return dir.Value
	}
	return "/etc/cni/net.d"
}
