// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
)

// Main replaces TestMain: it fetches and builds what is needed, moves the test process into a jail, runs the
// tests, and exits. Where that is impossible it still runs the tests, which are skipped with the reason.
func Main(m *testing.M) {
	flag.Parse()
	if jail.Outside() && Impossible() != nil {
		os.Exit(m.Run())
	}
	os.Exit(jail.Run(prepare, func() int {
		code := m.Run()
		if err := closeShared(); err != nil {
			fmt.Fprintln(os.Stderr, "e2e: close:", err)
			code = max(code, 1)
		}
		return code
	}))
}

// MainWith is Main for packages that need more. before prepares it outside of the jail, if a jail is
// possible, and inside sets it up in the jail. Either may be nil. Tests see the environment variables that
// they set.
func MainWith(m *testing.M, name string, before func(context.Context) error, inside func() error) {
	flag.Parse()
	var err error
	switch {
	case jail.Inside() && inside != nil:
		err = inside()
	case jail.Outside() && !testing.Short() && jail.Possible() == nil:
		err = before(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
	Main(m)
}

// HideUnifiedCgroups hides version 2 of cgroups where the host has both versions. crun would assume that the host uses
// version 2. Podman creates directories below the mount point, which must not be the machine's.
func HideUnifiedCgroups() error {
	const unified = "/sys/fs/cgroup/unified"
	err := unix.Unmount(unified, unix.MNT_DETACH)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("unmount %s: %w", unified, err)
	}
	if err := unix.Mount("tmpfs", unified, "tmpfs", 0, "mode=755"); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("mount %s: %w", unified, err)
	}
	return nil
}

func prepare() ([]string, error) {
	kit, err := node.Prepare(context.Background(), func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "e2e: "+format+"\n", args...)
	}, node.Generations()...)
	if err != nil {
		return nil, err
	}
	return kit.Env()
}

// Impossible returns the reason why the tests cannot run on this machine.
func Impossible() error {
	if testing.Short() {
		return errors.New("left out of short runs")
	}
	if ok, why := parts.Debian(); !ok {
		return errors.New(why)
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("no %s, which fetches containerd", tool)
		}
	}
	return jail.Possible()
}

// Require skips a test, with the reason, if it needs a real runtime and none can run. In CI it fails the
// test.
func Require(tb testing.TB) {
	tb.Helper()
	if jail.Inside() {
		return
	}
	why := Impossible()
	if why == nil {
		why = errors.New("the package's TestMain does not call e2e.Main")
		tb.Fatal(why)
	}
	if os.Getenv("CI") == "true" {
		tb.Fatalf("cannot run, and CI promises that it can: %v", why)
	}
	tb.Skipf("skipped: %v", why)
}

// shared holds the nodes that tests share, one of each generation.
var shared = struct {
	sync.Mutex
	nodes  map[node.Generation]*node.Node
	broken map[node.Generation]error
}{nodes: map[node.Generation]*node.Node{}, broken: map[node.Generation]error{}}

// sharedNode starts a generation's node at its first use. It starts the node again if containerd has died,
// which failed the test that it died in. A node that failed to start is not started again.
func sharedNode(ctx context.Context, g node.Generation) (*node.Node, error) {
	shared.Lock()
	defer shared.Unlock()
	if err := shared.broken[g]; err != nil {
		return nil, err
	}
	n := shared.nodes[g]
	if n != nil && !n.Alive() {
		delete(shared.nodes, g)
		if err := n.Close(ctx); err != nil {
			return nil, err
		}
		n = nil
	}
	if n == nil {
		kit, err := node.KitFromEnv()
		if err == nil {
			n, err = node.Start(context.WithoutCancel(ctx), kit, node.Options{Generation: g})
		}
		if err != nil {
			shared.broken[g] = fmt.Errorf("the shared node is broken: %w", err)
			return nil, err
		}
		shared.nodes[g] = n
	}
	return n, nil
}

func closeShared() error {
	shared.Lock()
	defer shared.Unlock()
	var errs []error
	for _, n := range shared.nodes {
		errs = append(errs, n.Close(context.Background()))
	}
	clear(shared.nodes)
	return errors.Join(errs...)
}
