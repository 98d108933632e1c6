// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Options of a Node. The zero value is containerd 2 of a distribution, with NRI and without CDI of its own.
type Options struct {
	// Generation of the runtime; empty: V2.
	Generation Generation
	// Crun uses crun in place of runc. CRIOCrun always does.
	Crun bool
	// Unified shows the runtime only version 2 of cgroups. CRIOCrun always sees only that version.
	Unified bool
	// Dir contains everything that the node creates; empty: a new directory below /run/n. Keep it short,
	// because sockets are created below it.
	Dir string
	// CDI turns on the runtime's own injection of CDI devices from the CRI field or from container
	// annotations. CDISpecDirs are its directories; nil: /etc/cdi and /var/run/cdi.
	CDI         bool
	CDISpecDirs []string
	// NewRunc uses the runc that is built from source, for features that Debian's runc lacks. It may be
	// missing: see Kit.NewRunc.
	NewRunc bool
	// NoNRI turns NRI off.
	NoNRI bool
	// SystemConfig puts CRI-O's configuration into /etc/crio. One node at a time can have it.
	SystemConfig bool
	// PluginRequestTimeout and PluginRegistrationTimeout are the time limits of NRI; 0: 20 s each, for a busy
	// machine. NRI's defaults are 2 s and 5 s.
	PluginRequestTimeout, PluginRegistrationTimeout time.Duration
	// Validator is NRI's default validator, which V24 and CRI-O have; nil: off, as by default.
	Validator *Validator
	// CNI is the configuration list of the pods' network; empty: ptp with addresses of host-local.
	CNI string
	// Mirror is the address HOST:PORT of a registry, which serves the images of Kubernetes' registries over HTTP;
	// empty: none.
	Mirror string
	// InfraContainers lets CRI-O run infra containers where root lacks CAP_SYS_RESOURCE, which their OOM score needs.
	// Pods whose containers share a PID namespace have one.
	InfraContainers bool
	// Plugins are pre-installed NRI plugins, which exist when the runtime starts.
	Plugins []Preinstalled
}

// Validator is the configuration of NRI's default validator, which it turns on.
type Validator struct {
	// Required are plugins without which no container is created.
	Required []string
	// Tolerate is the annotation with which a pod may start without them; empty: none.
	Tolerate string
}

// Preinstalled is an NRI plugin that the runtime starts.
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

func (n *Node) cdiDirs() []string {
	if n.opts.CDISpecDirs == nil {
		return []string{"/etc/cdi", "/var/run/cdi"}
	}
	return n.opts.CDISpecDirs
}

// ociRuntime returns the program that runs containers: Debian's runc for Debian's containerd. For the runtimes that are
// built from source, it is the runc that is built from source, if there is one.
func (n *Node) ociRuntime() string {
	shipped := n.opts.Generation == V1 || n.opts.Generation == V2
	switch {
	case n.opts.Crun:
		return n.kit.Crun
	case n.opts.NewRunc || !shipped && n.kit.NewRunc != "":
		return n.kit.NewRunc
	default:
		return n.kit.Runc
	}
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

// timeouts returns the time limits of NRI.
func (o Options) timeouts() (request, registration time.Duration) {
	return cmp.Or(o.PluginRequestTimeout, 20*time.Second), cmp.Or(o.PluginRegistrationTimeout, 20*time.Second)
}

// mirrored returns the registries whose images Options.Mirror serves.
func mirrored() []string { return []string{"registry.k8s.io", "k8s.gcr.io", "gcr.io"} }

func tomlList(items []string) string {
	quoted := make([]string, len(items))
	for i, s := range items {
		quoted[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
