// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/config"
	"github.com/jackfield/jackfield/pkg/hooksd"
	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/resolve"
	"github.com/jackfield/jackfield/pkg/staging"
)

// node is the host that a command looks at.
type node struct {
	configFile, root string
}

func (n *node) rootFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.root, "root", "/", "take all host paths below this `directory`")
}

func (n *node) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.configFile, "config", "", "configuration `file` (default "+config.DefaultPath+", when it exists)")
	n.rootFlag(cmd)
}

func (n *node) host(cmd *cobra.Command) (hostfs.Root, error) {
	if n.root == "" {
		// An empty variable in a script must not mean the current directory.
		return hostfs.Root{}, usagef(cmd, "--root: the name is empty")
	}
	host, err := hostfs.New(n.root)
	if err != nil {
		return host, usagef(cmd, "--root: %w", err)
	}
	return host, nil
}

// load gives the host and its configuration.
func (n *node) load(cmd *cobra.Command) (hostfs.Root, *config.Config, error) {
	host, err := n.host(cmd)
	if err != nil {
		return host, nil, err
	}
	cfg, err := n.config(host)
	return host, cfg, err
}

// engine makes the engine that a runtime's adapter would use, as far as the
// command line tells. The caller closes it.
func (n *node) engine(cmd *cobra.Command, env Env) (*resolve.Engine, hostfs.Root, *config.Config, error) {
	host, cfg, err := n.load(cmd)
	if err != nil {
		return nil, host, nil, err
	}
	dirs, err := cdiregistry.DirsFromEnv(env.Getenv(cdiregistry.DirsEnv))
	if err != nil {
		return nil, host, nil, err
	}
	// As the daemon of this host does it, or last did; where none ever ran, as directories.
	staged := func() bool {
		status, _ := staging.ReadStatus(host, cfg.StateDir)
		return status.Mode == staging.Mounts
	}
	engine, err := resolve.New(host, cfg, resolve.Options{
		Once: true, Kubelet: askKubelet, Staged: staged, TrustAnyone: notInUse(host),
		HooksDirs: func(host hostfs.Root, dirs []string) resolve.HooksDirs {
			return hooksd.New(host, dirs, hooksd.Options{TrustAnyone: notInUse(host), Once: true})
		},
		SpecDirs: dirs, ForAdministrator: true,
	})
	return engine, host, cfg, err
}

// registry reads the CDI files of the node. The caller closes it.
func (n *node) registry(env Env, host hostfs.Root, cfg *config.Config, watch bool) (*cdiregistry.Registry, error) {
	opts := cdiregistry.Options{Extensions: cfg.CDI.Extensions, DisableWatch: !watch}
	if notInUse(host) {
		opts.Trust = cdiregistry.TrustAnyone
	}
	dirs, err := cdiregistry.DirsFromEnv(env.Getenv(cdiregistry.DirsEnv))
	if err != nil {
		return nil, err
	}
	if dirs == nil {
		dirs = cfg.CDI.SpecDirs
	}
	return cdiregistry.New(host, dirs, opts)
}

// notInUse tells a tree that somebody looks at from the host that runs
// containers: who owns its files says nothing.
func notInUse(host hostfs.Root) bool { return host.Dir() != "/" }

// config reads the file that was asked for, a path of the caller's own, or the
// node's when there is one.
func (n *node) config(host hostfs.Root) (*config.Config, error) {
	return config.LoadAsked(host, n.configFile)
}

// hostPath is an argument as a host path. Without --root a relative one is the
// caller's own; with --root there is no telling what it should be relative to.
func (n *node) hostPath(cmd *cobra.Command, arg string) (string, error) {
	switch {
	case arg == "":
		return "", usagef(cmd, "a path is empty")
	case filepath.IsAbs(arg):
		return path.Clean(arg), nil
	case n.root != "/":
		return "", usagef(cmd, "with --root, paths are those of the host below it and begin with /; found %q", arg)
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return "", errors.Join(fmt.Errorf("find %q", arg), err)
	}
	return abs, nil
}
