// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// PluginOptions of Jackfield's NRI plugin.
type PluginOptions struct {
	// Config is the text of its configuration file; empty: no --config.
	Config string
	// Index and Name are those of the registration; empty: "10" and "jackfield".
	Index, Name string
	// Args follow the arguments of the harness.
	Args []string
	// Env has variables in addition to the harness's.
	Env []string
	// Binary; empty: jackfield-nri of this checkout.
	Binary string
}

// Plugin is a running NRI plugin that the runtime did not start.
type Plugin struct {
	*Process
	// Name is "NN-name".
	Name string
	// ConfigFile is the file with Config, which a test may change.
	ConfigFile string

	node *Node
	cmd  func() *exec.Cmd
	log  string
}

// StartPlugin starts Jackfield's plugin against this node and waits until containerd has registered it.
func (n *Node) StartPlugin(ctx context.Context, o PluginOptions) (*Plugin, error) {
	if o.Index == "" {
		o.Index = "10"
	}
	if o.Name == "" {
		o.Name = "jackfield"
	}
	if o.Binary == "" {
		bin, err := n.kit.Command("jackfield-nri")
		if err != nil {
			return nil, err
		}
		o.Binary = bin
	}
	n.mu.Lock()
	n.plugins++
	dir := n.path("plugin" + strconv.Itoa(n.plugins))
	n.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("start plugin: %w", err)
	}
	p := &Plugin{Name: o.Index + "-" + o.Name, node: n, log: filepath.Join(dir, "log")}
	args := []string{"--nri-socket", n.NRISocket(), "--index", o.Index, "--name", o.Name}
	if o.Config != "" {
		p.ConfigFile = filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(p.ConfigFile, []byte(o.Config), 0o600); err != nil {
			return nil, fmt.Errorf("start plugin: %w", err)
		}
		args = append(args, "--config", p.ConfigFile)
	}
	p.cmd = func() *exec.Cmd {
		cmd := exec.Command(o.Binary, append(args, o.Args...)...)
		cmd.Dir = dir
		cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, o.Env...)
		return cmd
	}
	if err := p.Start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Start starts the plugin again, after Stop or Kill, and waits until containerd has registered it.
func (p *Plugin) Start(ctx context.Context) error {
	from := len(p.node.Log())
	proc, err := StartProcess(p.cmd(), p.log)
	if err != nil {
		return err
	}
	p.Process = proc
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	if err := p.node.waitPlugin(ctx, p.Name, from, proc.Done()); err != nil {
		_ = proc.Stop(time.Second)
		return fmt.Errorf("%w\nthe plugin logged:\n%s", err, Tail(proc.Log(), 30))
	}
	return nil
}

// WaitPlugin waits until a plugin, "10-jackfield" for example, has registered since the last start of
// containerd.
func (n *Node) WaitPlugin(ctx context.Context, name string) error {
	n.mu.Lock()
	from := n.started
	n.mu.Unlock()
	return n.waitPlugin(ctx, name, from, nil)
}

// WaitPluginSince is WaitPlugin for containerd's log from byte offset from, for a name that was registered
// before.
func (n *Node) WaitPluginSince(ctx context.Context, name string, from int) error {
	return n.waitPlugin(ctx, name, from, nil)
}

// waitPlugin waits for the line that containerd logs when a plugin was configured and synchronized, because
// there is no other sign.
func (n *Node) waitPlugin(ctx context.Context, name string, from int, ended <-chan struct{}) error {
	for {
		log := n.Log()[from:]
		for line := range strings.Lines(log) {
			// containerd's log format escapes the quotes of the line.
			if _, after, ok := strings.Cut(line, `plugin \"`+name+`\" `); ok &&
				(strings.HasPrefix(after, "connected") || strings.HasPrefix(after, "synchronization success")) {
				return nil
			}
			// NRI 0.6 lists only plugins that it started itself.
			if strings.Contains(line, `: \"`+name+`\" (pre-connected:`) {
				return nil
			}
		}
		select {
		case <-ended:
			return fmt.Errorf("wait for plugin %q: it ended", name)
		case <-ctx.Done():
			return fmt.Errorf("wait for plugin %q: %w: containerd logged:\n%s", name, context.Cause(ctx), Tail(log, 10))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Preinstall installs a plugin, which containerd starts at its next start.
func (n *Node) Preinstall(p Preinstalled) error {
	src, err := os.Open(p.Binary)
	if err != nil {
		return fmt.Errorf("install plugin %q: %w", p.Name, err)
	}
	defer src.Close()
	dst, err := os.OpenFile(filepath.Join(n.PluginDir(), p.Name), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return fmt.Errorf("install plugin %q: %w", p.Name, err)
	}
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		return fmt.Errorf("install plugin %q: %w", p.Name, err)
	}
	if err := dst.Close(); err != nil {
		return fmt.Errorf("install plugin %q: %w", p.Name, err)
	}
	if p.Config == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(n.PluginConfigDir(), p.Name+".conf"), []byte(p.Config), 0o600); err != nil {
		return fmt.Errorf("install plugin %q: %w", p.Name, err)
	}
	return nil
}
