// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/config/runtimeconfig"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Options select the node, and whether findings are fixed.
type Options struct {
	Host           hostfs.Root
	ConfigFile     string // Jackfield's; "" for the node's own
	SpecDirs       string // the value of CDI_SPEC_DIRS
	ContainerdFile string
	CRIOFile       string
	// ContainerdVersion is the output of the host's containerd --version; "" if it cannot be run.
	ContainerdVersion string
	NRISocket         string // "" for the socket in the runtime's configuration
	Fix               bool   // correct the findings that are safe to correct
	IsPod             bool   // doctor runs in a pod, which does not see the host's files
}

// node is the inventory of a node as far as the checks have read it. Its zero value describes an unresponsive node, on
// which everything can exist.
type node struct {
	Options
	findings []Finding // of the checks that have run

	cfg         *config.Config // to check, or the default
	configValid bool
	configName  string // in messages

	daemon    *status.Node // nil if jackfield-nri did not answer
	daemonErr error        // why; nil also if it timed out

	containerd             *runtimeconfig.Containerd // nil without a configuration that can be read
	crio                   *runtimeconfig.CRIO       // the same
	noContainerd, noCRIO   bool                      // no configuration exists
	lacksNRI               bool                      // containerd is older than NRI
	nriOn                  bool                      // by a runtime's configuration
	noNRISocket, hasPodman bool
	hookServesCRIO         bool // CRI-O has NRI off, and runs jackfield-hook

	unresponsive map[string]bool         // directories
	reading      *atomic.Pointer[string] // file that the check is reading
	snapshot     *cdi.Snapshot           // nil if the CDI directories cannot be read
}

func newNode(opts Options) *node {
	return &node{Options: opts, cfg: config.Default(), reading: new(atomic.Pointer[string])}
}

func (n *node) hasConfig() bool     { return n.configValid }
func (n *node) hasContainerd() bool { return n.containerd != nil }
func (n *node) hasCRIO() bool       { return n.crio != nil }
func (n *node) hasVswitches() bool  { return len(n.cfg.Vswitches) > 0 }
func (n *node) hasHooksDirs() bool  { return len(n.cfg.Hooks.Dirs) > 0 }
func (n *node) hasMultus() bool     { return n.cfg.Multus.CacheDir != "" }
func (n *node) hasSnapshot() bool   { return n.snapshot != nil }
func (n *node) isRegistered() bool  { return n.daemon != nil && n.daemon.Registered }
func (n *node) isPodmanHost() bool  { return n.hasPodman }
func (n *node) canHaveNRI() bool    { return !n.isHookOnly() }

// hasRuntime reports whether jackfield-nri is registered with a runtime that Jackfield supports.
func (n *node) hasRuntime() bool {
	return n.isRegistered() && n.daemon.Runtime != nil && n.daemon.Runtime.Limitation() == ""
}

// isHookOnly reports whether jackfield-hook serves all containers: then jackfield-nri has nothing to do.
func (n *node) isHookOnly() bool {
	return n.isPodmanOnly() || n.hookServesCRIO && n.noContainerd && n.daemon == nil
}

// isPodmanOnly reports whether Podman is here, and no runtime of NRI.
func (n *node) isPodmanOnly() bool {
	return n.hasPodman && n.noContainerd && n.noCRIO && n.noNRISocket && n.daemon == nil && !n.IsPod
}

// hasError reports whether a check has reported an error.
func (n *node) hasError(check string) bool {
	return slices.ContainsFunc(n.findings, func(f Finding) bool { return f.Check == check && f.Severity == Error })
}

// settings returns the configuration of a runtime by its NRI name, if it could be read as a whole.
func (n *node) settings(runtime string) (s runtimeconfig.Settings, read bool) {
	switch {
	case runtime == "containerd" && n.containerd != nil:
		return n.containerd.Settings, true
	case runtime == "cri-o" && n.crio != nil && len(n.crio.Faults) == 0:
		return n.crio.Settings, true
	}
	return nil, false
}

// nriSocket returns the NRI socket of the options, or else of the runtime's configuration, or else the default.
func (n *node) nriSocket() string {
	socket := n.NRISocket
	if n.containerd != nil {
		socket = cmp.Or(socket, n.containerd.Get("plugins", runtimeconfig.NRIPlugin, "socket_path").Value)
	}
	if n.crio != nil {
		socket = cmp.Or(socket, n.crio.Get("crio", "nri", "nri_listen").Value)
	}
	return cmp.Or(socket, runtimeconfig.NRISocket)
}

// nriPluginDir returns the directory of the NRI plugins that the runtime starts.
func (n *node) nriPluginDir() (dir string) {
	if n.crio != nil {
		dir = n.crio.Get("crio", "nri", "nri_plugin_dir").Value
	}
	if n.containerd != nil {
		dir = cmp.Or(dir, n.containerd.Get("plugins", runtimeconfig.NRIPlugin, "plugin_path").Value)
	}
	return cmp.Or(dir, "/opt/nri/plugins")
}

// configFiles returns access to configuration files that keeps the file being read for [node.examine].
func (n *node) configFiles() runtimeconfig.Files {
	return runtimeconfig.Files{Host: n.Host, Reading: func(path string) { n.reading.Store(&path) }}
}

// configFile returns the configuration file of the command line or the node.
func (n *node) configFile() string { return cmp.Or(n.ConfigFile, config.DefaultPath) }

// OpenRegistry reads the CDI spec files of a node. specDirs is the value of CDI_SPEC_DIRS. The
// caller closes the registry.
func OpenRegistry(host hostfs.Root, cfg *config.Config, specDirs string, watch bool) (*cdi.Cache, error) {
	dirs, err := cdi.DirsFromEnv(specDirs)
	if err != nil {
		return nil, err
	}
	if dirs == nil {
		dirs = cfg.CDI.SpecDirs
	}
	return cdi.NewCache(cdi.Options{Root: host.Dir(), SpecDirs: dirs, Extensions: cfg.CDI.Extensions,
		DisableWatch: !watch})
}
