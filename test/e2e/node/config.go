// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options of a Node. The zero value is containerd 2 of a distribution, with NRI and without CDI of its own.
type Options struct {
	// Generation of containerd; empty: V2.
	Generation Generation
	// Dir contains everything that the node creates; empty: a new directory below /run/n. Keep it short,
	// because sockets are created below it.
	Dir string
	// CDI turns on containerd's own injection of CDI devices from the CRI field or from container
	// annotations. CDISpecDirs are its directories; nil: /etc/cdi and /var/run/cdi.
	CDI         bool
	CDISpecDirs []string
	// NewRunc uses the runc that is built from source, for features that Debian's runc lacks. It may be
	// missing: see Kit.NewRunc.
	NewRunc bool
	// NoNRI turns NRI off.
	NoNRI bool
	// PluginRequestTimeout and PluginRegistrationTimeout are the time limits of NRI; 0: 20 s each, for a busy
	// machine. NRI's defaults are 2 s and 5 s.
	PluginRequestTimeout, PluginRegistrationTimeout time.Duration
	// Validator is NRI's default validator, which V24 has; nil: off, as by default.
	Validator *Validator
	// CNI is the configuration list of the pods' network; empty: ptp with addresses of host-local.
	CNI string
	// Plugins are pre-installed NRI plugins, which exist when containerd starts.
	Plugins []Preinstalled
}

// Validator is the configuration of NRI's default validator, which it turns on.
type Validator struct {
	// Required are plugins without which no container is created.
	Required []string
	// Tolerate is the annotation with which a pod may start without them; empty: none.
	Tolerate string
}

// Preinstalled is an NRI plugin that containerd starts.
type Preinstalled struct {
	// Name is "NN-name".
	Name string
	// Binary is the program, which is copied.
	Binary string
	// Config is the text of its drop-in, conf.d/NN-name.conf; empty: none.
	Config string
}

func (n *Node) path(names ...string) string {
	return filepath.Join(append([]string{n.dir}, names...)...)
}

// runc returns Debian's runc for Debian's containerd. For the containerd that is built from source, it
// returns the runc that is built from source, if there is one.
func (n *Node) runc() string {
	if n.opts.NewRunc || n.opts.Generation == V24 && n.kit.NewRunc != "" {
		return n.kit.NewRunc
	}
	return n.kit.Runc
}

// config returns containerd's configuration file, in the version that containerd itself writes.
func (n *Node) config() string {
	server := fmt.Sprintf("[grpc]\n  address = %q\n", n.Socket())
	switch n.opts.Generation {
	case V1:
		return n.configCommon(2, server) + n.configV1() + n.configNRI()
	case V24:
		server = fmt.Sprintf("[plugins.\"io.containerd.server.v1.grpc\"]\n  address = %q\n[plugins.\"io.containerd.server.v1.ttrpc\"]\n  address = %q\n", n.Socket(), n.Socket()+".ttrpc")
		return n.configCommon(4, server) + n.configV2() + n.configNRI() + n.configValidator()
	default:
		return n.configCommon(3, server) + n.configV2() + n.configNRI()
	}
}

func (n *Node) configCommon(version int, server string) string {
	return fmt.Sprintf(`version = %d
root = %q
state = %q
disabled_plugins = ["io.containerd.internal.v1.opt"]
%s[debug]
  level = "info"
`, version, n.path("root"), n.path("state"), server)
}

func (n *Node) configV1() string {
	return fmt.Sprintf(`[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  disable_apparmor = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  enable_cdi = %t
  cdi_spec_dirs = %s
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`, PauseImage, n.opts.CDI, tomlList(n.cdiDirs()), n.runc(), n.path("cni", "bin"), n.path("cni", "conf"))
}

func (n *Node) configV2() string {
	return fmt.Sprintf(`[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = %q
[plugins."io.containerd.cri.v1.runtime"]
  disable_apparmor = true
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
  netns_mounts_under_state_dir = true
  enable_cdi = %t
  cdi_spec_dirs = %s
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%q]
    conf_dir = %q
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
`, PauseImage, n.opts.CDI, tomlList(n.cdiDirs()), n.runc(), n.path("cni", "bin"), n.path("cni", "conf"))
}

func (n *Node) configNRI() string {
	request, registration := n.opts.PluginRequestTimeout, n.opts.PluginRegistrationTimeout
	if request == 0 {
		request = 20 * time.Second
	}
	if registration == 0 {
		registration = 20 * time.Second
	}
	return fmt.Sprintf(`[plugins."io.containerd.nri.v1.nri"]
  disable = %t
  disable_connections = false
  socket_path = %q
  plugin_path = %q
  plugin_config_path = %q
  plugin_request_timeout = %q
  plugin_registration_timeout = %q
`, n.opts.NoNRI, n.NRISocket(), n.PluginDir(), n.PluginConfigDir(), request, registration)
}

func (n *Node) configValidator() string {
	v := n.opts.Validator
	if v == nil {
		return ""
	}
	return fmt.Sprintf(`  [plugins."io.containerd.nri.v1.nri".default_validator]
    enable = true
    required_plugins = %s
    tolerate_missing_plugins_annotation = %q
`, tomlList(v.Required), v.Tolerate)
}

func (n *Node) cdiDirs() []string {
	if n.opts.CDISpecDirs == nil {
		return []string{"/etc/cdi", "/var/run/cdi"}
	}
	return n.opts.CDISpecDirs
}

// cniConfig returns the pods' network: a pair of interfaces for each pod, for which the kernel needs only
// veth.
func (n *Node) cniConfig() string {
	if n.opts.CNI != "" {
		return n.opts.CNI
	}
	return fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "pods",
  "plugins": [{
    "type": "ptp", "ipMasq": false,
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": "10.88.0.0/16"}]]}
  }]
}
`, n.path("cni", "state"))
}

// linkCNI links Debian's CNI plugins and those of this checkout into one directory.
func (n *Node) linkCNI() error {
	entries, err := os.ReadDir(n.kit.CNI)
	if err != nil {
		return fmt.Errorf("link CNI plugins: %w", err)
	}
	plugins := map[string]string{}
	for _, e := range entries {
		plugins[e.Name()] = filepath.Join(n.kit.CNI, e.Name())
	}
	if own, ok := n.kit.Commands["jackfield-cni"]; ok {
		plugins["jackfield-cni"] = own
	}
	for name, file := range plugins {
		if err := os.Symlink(file, n.path("cni", "bin", name)); err != nil {
			return fmt.Errorf("link CNI plugins: %w", err)
		}
	}
	return nil
}

func tomlList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
