// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e/node"
	nritest "github.com/jackfield/jackfield/test/nri"
	"github.com/jackfield/jackfield/test/vswitch"
)

// H is a node for one test. Its methods fail the test on errors. The methods of h.Node return errors.
type H struct {
	*node.Node
	t testing.TB
}

// Each runs f as a subtest for each generation, on nodes that all tests of the package share.
func Each(t *testing.T, f func(t *testing.T, h *H)) {
	t.Helper()
	Require(t)
	for _, g := range node.Generations() {
		t.Run(string(g), func(t *testing.T) { f(t, Shared(t, g)) })
	}
}

// EachWithNRI011 is Each for the generations with NRI 0.11 or later.
func EachWithNRI011(t *testing.T, f func(t *testing.T, h *H)) {
	t.Helper()
	Require(t)
	for _, g := range node.WithNRI011() {
		t.Run(string(g), func(t *testing.T) { f(t, Shared(t, g)) })
	}
}

// EachShipped is Each for the generations that a distribution ships. Use it for tests that take long and
// depend little on the runtime.
func EachShipped(t *testing.T, f func(t *testing.T, h *H)) {
	t.Helper()
	Require(t)
	for _, g := range node.Shipped() {
		t.Run(string(g), func(t *testing.T) { f(t, Shared(t, g)) })
	}
}

// EachFresh is Each on nodes of the test's own. Use it for tests that restart or configure the runtime.
func EachFresh(t *testing.T, o node.Options, f func(t *testing.T, h *H)) {
	t.Helper()
	eachFresh(t, node.Generations(), o, f)
}

// EachFreshDaemon is EachFresh without CRIOCrun. Use it for tests that take long and depend little on the OCI runtime.
func EachFreshDaemon(t *testing.T, o node.Options, f func(t *testing.T, h *H)) {
	t.Helper()
	eachFresh(t, append(node.Containerds(), node.CRIO), o, f)
}

// EachFreshContainerd is EachFresh for containerd. Use it for tests of containerd's configuration.
func EachFreshContainerd(t *testing.T, o node.Options, f func(t *testing.T, h *H)) {
	t.Helper()
	eachFresh(t, node.Containerds(), o, f)
}

// EachFreshWith is EachFresh for the generations that have a feature.
func EachFreshWith(t *testing.T, feature compatibility.Feature, o node.Options, f func(t *testing.T, h *H)) {
	t.Helper()
	lacks := func(g node.Generation) bool { return !feature.Has(g) }
	eachFresh(t, slices.DeleteFunc(node.Generations(), lacks), o, f)
}

func eachFresh(t *testing.T, generations []node.Generation, o node.Options, f func(t *testing.T, h *H)) {
	t.Helper()
	Require(t)
	for _, g := range generations {
		t.Run(string(g), func(t *testing.T) {
			o := o
			o.Generation = g
			f(t, Fresh(t, o))
		})
	}
}

// EachUserNS is EachFresh on nodes that run pods with a user namespace (hostUsers: false), which containerd 2 and CRI-O
// do not do with runc before 1.2.
func EachUserNS(t *testing.T, f func(t *testing.T, h *H)) {
	t.Helper()
	for _, g := range node.Generations() {
		t.Run(string(g), func(t *testing.T) {
			o := node.Options{Generation: g, NewRunc: g != node.V1 && g != node.CRIOCrun}
			if o.NewRunc && Kit(t).NewRunc == "" {
				if os.Getenv("CI") == "true" {
					t.Fatal("no C compiler to build runc with, and CI promises that there is one")
				}
				t.Skip("skipped: this needs a newer runc than Debian's, and there is no C compiler to build it with")
			}
			f(t, Fresh(t, o))
		})
	}
}

// Shared returns the package's node of a generation.
func Shared(t testing.TB, g node.Generation) *H {
	t.Helper()
	Require(t)
	n, err := sharedNode(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	h := &H{Node: n, t: t}
	h.logOnFailure()
	return h
}

// Fresh returns a node that ends with the test. A node starts in a quarter of a second.
func Fresh(t testing.TB, o node.Options) *H {
	t.Helper()
	Require(t)
	kit, err := node.KitFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(t.Context(), kit, o)
	if err != nil {
		t.Fatal(err)
	}
	h := &H{Node: n, t: t}
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close %s: %v", n.Generation(), err)
		}
	})
	h.logOnFailure()
	return h
}

// Kit returns the paths of the programs, for tests that need no node.
func Kit(t testing.TB) *node.Kit {
	t.Helper()
	Require(t)
	kit, err := node.KitFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	return kit
}

func (h *H) logOnFailure() {
	from := len(h.Log())
	h.t.Cleanup(func() {
		if h.t.Failed() {
			h.t.Logf("%s logged:\n%s", h.Generation(), node.Tail(h.Log()[from:], 60))
		}
	})
}

// RestartRuntime stops the runtime with SIGTERM and starts it again. Pods, and plugins that connected by
// themselves, continue to run. It is only for Fresh nodes.
func (h *H) RestartRuntime() {
	h.t.Helper()
	if err := h.Node.Restart(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// KillRuntime is RestartRuntime with SIGKILL.
func (h *H) KillRuntime() {
	h.t.Helper()
	if err := h.Node.Kill(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
}

// Plugin is Jackfield's NRI plugin, which ends with the test.
type Plugin struct {
	*node.Plugin
	h *H
}

// StartPlugin runs jackfield-nri of this checkout against the node until the test ends. It returns when
// containerd has registered the plugin.
func (h *H) StartPlugin(o node.PluginOptions) *Plugin {
	h.t.Helper()
	p, err := h.Node.StartPlugin(h.t.Context(), o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = p.Stop(node.Patience)
		if h.t.Failed() {
			h.t.Logf("plugin %s logged:\n%s", p.Name, node.Tail(p.Log(), 60))
		}
	})
	return &Plugin{Plugin: p, h: h}
}

// Restart starts the plugin again, after Stop or Kill.
func (p *Plugin) Restart() {
	p.h.t.Helper()
	if err := p.Start(p.h.t.Context()); err != nil {
		p.h.t.Fatal(err)
	}
}

// WaitLog waits until the plugin's log, from byte offset from, contains one of the texts.
func (p *Plugin) WaitLog(from int, texts ...string) {
	p.h.t.Helper()
	ctx, cancel := context.WithTimeout(p.h.t.Context(), node.Patience)
	defer cancel()
	if err := p.Plugin.WaitLog(ctx, from, texts...); err != nil {
		p.h.t.Fatal(err)
	}
}

// WaitPlugin waits until a plugin, "10-jackfield" for example, has registered since the last start of
// containerd.
func (h *H) WaitPlugin(name string) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), node.Patience)
	defer cancel()
	if err := h.Node.WaitPlugin(ctx, name); err != nil {
		h.t.Fatal(err)
	}
}

// Connect runs a stub plugin in the test process until the test ends. It returns when containerd has
// registered the plugin.
func (h *H) Connect(idx, name string, plugin any) (stop func()) {
	h.t.Helper()
	from := len(h.Log())
	stop, err := nritest.StartPlugin(context.WithoutCancel(h.t.Context()), h.NRISocket(), idx, name, plugin)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(stop)
	ctx, cancel := context.WithTimeout(h.t.Context(), node.Patience)
	defer cancel()
	if err := h.WaitPluginSince(ctx, idx+"-"+name, from); err != nil {
		h.t.Fatal(err)
	}
	return stop
}

// Command returns a command that is not started yet, and ends with the test. A name without a slash,
// "jackfield" for example, is a command of the checkout if it has one of that name.
func (h *H) Command(name string, args ...string) *exec.Cmd {
	h.t.Helper()
	if !strings.Contains(name, "/") {
		if path, err := h.Kit().Command(name); err == nil {
			name = path
		}
	}
	return exec.CommandContext(h.t.Context(), name, args...)
}

// WriteFile writes a file of the host, /etc/cdi/x.json for example, with the directories that it needs. When
// the test ends, it removes what it created.
func (h *H) WriteFile(path, text string) {
	h.t.Helper()
	h.MkdirAll(filepath.Dir(path))
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { os.Remove(path) })
}

// MkdirAll creates a directory of the host. When the test ends, it removes the directories that it created,
// with their content.
func (h *H) MkdirAll(dir string) {
	h.t.Helper()
	first := ""
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(d); err == nil {
			break
		}
		first = d
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		h.t.Fatal(err)
	}
	if first != "" {
		h.t.Cleanup(func() {
			if err := os.RemoveAll(first); err != nil {
				h.t.Errorf("clean up: %v", err)
			}
		})
	}
}

// CharDevice creates a character device node on the host and removes it when the test ends: 1, 3 is
// the null device, 1, 5 the zero device.
func (h *H) CharDevice(path string, major, minor uint32) {
	h.t.Helper()
	h.MkdirAll(filepath.Dir(path))
	if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(major, minor))); err != nil {
		h.t.Fatalf("create device %q: %v", path, err)
	}
	h.t.Cleanup(func() { os.Remove(path) })
}

// Vswitch serves a socket on the host until the test ends, and creates the directory of the socket if it is
// missing. The socket answers vswitch.Greeting(name).
func (h *H) Vswitch(kind vswitch.Kind, path, name string) *vswitch.Server {
	h.t.Helper()
	if !strings.HasPrefix(path, "@") {
		h.MkdirAll(filepath.Dir(path))
	}
	s, err := vswitch.Listen(kind, path, vswitch.Greeting(name))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			h.t.Errorf("close vswitch %q: %v", name, err)
		}
	})
	return s
}

// Eventually calls f until it returns nil, for at most node.Patience.
func (h *H) Eventually(f func() error) {
	h.t.Helper()
	err := f()
	for end := time.Now().Add(node.Patience); err != nil && time.Now().Before(end); err = f() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		h.t.Fatal(err)
	}
}

// Inventory lists processes, mounts, interfaces, cgroups, and the files in the given directories. Compare
// with NothingLeft.
func (h *H) Inventory(dirs ...string) []string {
	h.t.Helper()
	found, err := node.Inventory(dirs...)
	if err != nil {
		h.t.Fatal(err)
	}
	return found
}

// NothingLeft fails the test if something that is not in before still exists after node.Patience. dirs are
// the directories that Inventory was called with.
func (h *H) NothingLeft(before []string, dirs ...string) {
	h.t.Helper()
	var left []string
	for end := time.Now().Add(node.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if left = node.Leftovers(before, h.Inventory(dirs...)); len(left) == 0 {
			return
		}
	}
	h.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
}
