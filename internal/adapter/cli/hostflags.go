// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/jackfield/jackfield/internal/config"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/report/doctor"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// hostFlags select the host and the configuration that a command reads.
type hostFlags struct {
	configFile, root string
	requireOwner     bool // also the file of --config must belong to root or to this process's user
}

// localNode is the host and its configuration.
type localNode struct {
	host hostfs.Root
	cfg  *config.Config
}

func (n *hostFlags) addRootFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.root, "root", "/", "take all host paths below this `directory`")
}

func (n *hostFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&n.configFile, "config", "", "configuration `file` (default "+config.DefaultPath+", when it "+
		"exists)")
	n.addRootFlag(cmd)
}

func (n *hostFlags) openHost(cmd *cobra.Command) (hostfs.Root, error) {
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

// loadConfig reads the configuration. The host's own file must have the owner that jackfield-nri requires. The file of
// --config can be another user's draft, unless the command injects by it.
func (n *hostFlags) loadConfig(host hostfs.Root) (*config.Config, error) {
	return config.LoadOrDefault(host, n.configFile, config.Options{RequireOwner: n.requireOwner || n.configFile == ""})
}

// openNode returns the host with the configuration of the flag, which is a path of the caller, or with the host's own
// if it exists, or else with the default.
func (n *hostFlags) openNode(cmd *cobra.Command) (local localNode, err error) {
	if local.host, err = n.openHost(cmd); err == nil {
		local.cfg, err = n.loadConfig(local.host)
	}
	return local, err
}

// openInForce is like openNode, but tolerates a faulty configuration, for commands that show the node. It returns the
// configuration in force, from the daemon or from its copy, and reports this on standard error.
func (n *hostFlags) openInForce(cmd *cobra.Command, env Env) (local localNode, err error) {
	if local.host, err = n.openHost(cmd); err != nil {
		return local, err
	}
	local.cfg, err = n.loadConfig(local.host)
	if err == nil {
		_, err = local.cfg.CompilePolicy("")
	}
	if err == nil || n.configFile != "" {
		return local, err
	}
	cfg, from := n.configInForce(cmd.Context(), local.host)
	if cfg == nil {
		return local, &hintedError{err: err, hint: "correct it: `jackfield validate " + config.DefaultPath +
			"` has every finding"}
	}
	env.message("warning: %v", err)
	env.message("note: %s is used until that is corrected", from)
	local.cfg = cfg
	return local, nil
}

// configInForce returns the configuration with which the daemon runs, or would start; nil if neither is known.
func (n *hostFlags) configInForce(ctx context.Context, host hostfs.Root) (cfg *config.Config, from string) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if node, err := status.Find(ctx, host, config.StateDirs(host, n.configFile)); err == nil &&
		(node.Config.Text != "" || node.Config.File == "") {
		if cfg, err := config.Parse([]byte(node.Config.Text), node.Config.File); err == nil {
			return cfg, fmt.Sprintf("the configuration in force, of jackfield-nri (process %d)", node.PID)
		}
	}
	if cfg, err := config.LoadCopy(host, config.DefaultCopyPath, config.DefaultPath); err == nil {
		return cfg, "the last good configuration, " + config.DefaultCopyPath + ","
	}
	return nil, ""
}

// openRegistry reads the configuration and the CDI files of the node. The caller closes the registry.
func (n *hostFlags) openRegistry(cmd *cobra.Command, env Env, watch bool) (*cdi.Cache, localNode, error) {
	local, err := n.openInForce(cmd, env)
	if err != nil {
		return nil, local, err
	}
	registry, err := doctor.OpenRegistry(local.host, local.cfg, env.Getenv(cdi.DirsEnv), watch)
	return registry, local, err
}

// hostPath returns an argument as a host path. A relative path is the caller's; with --root it is
// refused, because nothing says to which directory it is relative.
func (n *hostFlags) hostPath(cmd *cobra.Command, arg string) (string, error) {
	switch {
	case arg == "":
		return "", usagef(cmd, "a path is empty")
	case filepath.IsAbs(arg):
		return path.Clean(arg), nil
	case n.root != "/":
		return "", usagef(cmd, "invalid path %q: with --root, it must be a path of the host below it, and begin with /", arg)
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return "", fmt.Errorf("find %q: %w", arg, err)
	}
	return abs, nil
}

// isPod reports whether the command runs in a pod, such as the pod of jackfield-nri, on the pod's own files. The
// kubelet sets the variable in every container.
func isPod(env Env, host hostfs.Root) bool {
	return host.IsLive() && env.Getenv("KUBERNETES_SERVICE_HOST") != ""
}
