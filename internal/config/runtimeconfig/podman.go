// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
)

// defaultHooksDirs are the directories in which root's Podman reads hook files.
var defaultHooksDirs = []string{"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"}

// ContainersConfDropIn is the drop-in that makes Podman read Jackfield's hook files.
const ContainersConfDropIn = "/etc/containers/containers.conf.d/50-jackfield.conf"

// Podman is the part of containers.conf(5) about hooks, for root's Podman.
type Podman struct {
	HooksDirs []string
	Source    Setting // sets HooksDirs; unset for the default
	Faults    []error // files that cannot be read
}

// ReadPodman reads the files of containers.conf(5) in Podman's order. The last file that sets
// hooks_dir counts, unless its list ends with {append=true}.
func ReadPodman(host Files) *Podman {
	p := &Podman{HooksDirs: defaultHooksDirs}
	p.readFile(host, "/usr/share/containers/containers.conf")
	p.readFile(host, "/etc/containers/containers.conf")
	const dir = "/etc/containers/containers.conf.d"
	names, err := host.ReadDir(dir) // sorted
	p.addFault(err)
	for _, name := range names {
		if strings.HasSuffix(name, ".conf") {
			p.readFile(host, path.Join(dir, name))
		}
	}
	return p
}

// readFile adds the hook directories of one containers.conf. A list replaces the earlier list unless it has
// append=true.
func (p *Podman) readFile(host Files, file string) {
	data, err := host.ReadFile(file)
	if err != nil {
		p.addFault(err)
		return
	}
	document, err := parseTOML(file, string(data))
	if err != nil {
		p.addFault(fmt.Errorf("%s: %w", file, err))
		return
	}
	dirs := newSettings(document).Get("engine", "hooks_dir")
	switch {
	case !dirs.IsSet():
	case strings.Contains(strings.ReplaceAll(dirs.Value, " ", ""), "append=true"):
		p.HooksDirs, p.Source = append(p.HooksDirs[:len(p.HooksDirs):len(p.HooksDirs)], dirs.List...), dirs
	default:
		p.HooksDirs, p.Source = dirs.List, dirs
	}
}

// addFault adds an error, unless the file or directory does not exist.
func (p *Podman) addFault(err error) {
	if err != nil && !errdefs.IsNotFound(err) {
		p.Faults = append(p.Faults, err)
	}
}
