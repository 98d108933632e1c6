// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/internal/source/hooksd/ocihook"
)

// Options change how an Engine works. The zero value is for a node.
type Options struct {
	// AllowAll grants everything, for commands that the administrator runs.
	AllowAll bool
	// Once is for a process that resolves one request and exits: it watches nothing.
	Once bool
	// Staged reports whether sockets are bound in the staging directory (staging.ModeMount). Otherwise
	// the runtime binds their directories. nil means that they are not.
	Staged func() bool
	// FindSocketDir returns the relation of a sandbox to the directory at a path below a canonical socket root;
	// staging.SocketDirFinder returns such a function. nil means that every directory is foreign.
	FindSocketDir func(sandboxID, root, rel string) (edit.DirState, error)
	// SpecDirs, if not nil, replaces the directories of the configuration.
	SpecDirs []string
	// Kubelet queries the kubelet; kubelet.QueryPod is one. Without it the kubelet's allocations are
	// unknown.
	Kubelet Kubelet
	// Pods queries the kubelet's Pods API; kubelet.QueryPodObject is one. It can be nil.
	Pods attachment.Pods
	// Ledger records the usage of pods, for limits of pods. It is nil for a process that sees only one
	// container.
	Ledger *Ledger
	// Holders returns the living containers with their devices, for the rule that a function belongs to one container.
	// It is nil for a process that knows no other containers.
	Holders func() []Holder
	// CheckResponsive is called before a directory is read whose file system can hang. On an error
	// the directory is not read. nil checks nothing.
	CheckResponsive func(dir string) error
	// Hooks returns the hooks that the configuration's hooks.d directories hold now, in the order of their
	// injection, for a runtime that does not read them itself; internal/source/hooksd has such a function.
	Hooks func() []*ocihook.Hook
	// ForAdministrator adds details to notes, and errors can name devices of the node that the policy
	// would refuse. Messages that end in a pod's events must not have them.
	ForAdministrator bool
	// ConfigName is the configuration's name in messages; "" means its file.
	ConfigName string
}

// onNode returns advice that only an administrator of the node can follow, such as "run `jackfield devices`". The
// author of a pod reads errors in the pod's events, and learns from the text whose part it is.
func (o *Options) onNode(advice string) string {
	if o.ForAdministrator {
		return advice
	}
	return "the node's administrator can " + advice
}

// Kubelet returns which container has which device.
type Kubelet = attachment.Kubelet

// setDefaults sets the options that the caller left out.
func (o *Options) setDefaults(cfg *config.Config) {
	o.ConfigName = cmp.Or(o.ConfigName, cfg.File(), config.DefaultPath)
	if o.Staged == nil {
		o.Staged = func() bool { return false }
	}
	if o.FindSocketDir == nil {
		o.FindSocketDir = func(string, string, string) (edit.DirState, error) { return edit.ForeignDir, nil }
	}
	if o.CheckResponsive == nil {
		o.CheckResponsive = func(string) error { return nil }
	}
	if o.SpecDirs == nil {
		o.SpecDirs = cfg.CDI.SpecDirs
	}
	if len(cfg.Hooks.Dirs) == 0 {
		o.Hooks = nil
	}
}

// checkDirs returns the error of the first directory that is unresponsive, or nil.
func (o *Options) checkDirs(dirs ...string) error {
	for _, dir := range dirs {
		if err := o.CheckResponsive(dir); err != nil {
			return err
		}
	}
	return nil
}
