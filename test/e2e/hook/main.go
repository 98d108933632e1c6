// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/fetched"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/e2e/packaged"
	"github.com/jackfield/jackfield/test/parts"
)

const packages = fetched.Set("Podman")

// kit has the paths of the runtimes.
type kit struct {
	Podman, Conmon, Crun, Buildah string
	Uidmap                        string // the directory of newuidmap and newgidmap
}

// Main is e2e.Main for this package. It also fetches Podman and crun, before the jail.
func Main(m *testing.M) {
	if os.Getenv(memlockEnv) != "" {
		fmt.Fprintln(os.Stderr, "hook:", runAsIfRaised(os.Args[1:]))
		os.Exit(1)
	}
	e2e.MainWith(m, "hook", func(ctx context.Context) error {
		return errors.Join(packages.Fetch(ctx, append(append(parts.Podman(), parts.Crun()...), parts.Uidmap(), parts.Buildah())...),
			packaged.Build(ctx))
	}, inside)
}

func inside() error {
	// The test of version 2 of cgroups mounts that version itself.
	if err := e2e.HideUnifiedCgroups(); err != nil {
		return err
	}
	if err := libraries(); err != nil {
		return fmt.Errorf("configure the loader: %w", err)
	}
	return nil
}

// libraries makes the jail's loader find the fetched libraries. An environment variable would not suffice,
// because Podman, conmon and crun start each other with environments of their own. The libraries are mounted
// where every user can reach them.
func libraries() error {
	unpacked, err := packages.Packages()
	if err != nil || len(unpacked) == 0 {
		return err
	}
	var found, dirs []string
	for _, u := range unpacked {
		for _, pattern := range []string{"usr/lib/*-linux-gnu", "lib/*-linux-gnu"} {
			matches, err := filepath.Glob(u.Path(pattern))
			if err != nil {
				return err
			}
			found = append(found, matches...)
		}
	}
	for i, from := range found {
		dir := fmt.Sprintf("/run/lib/%d", i)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(from, dir, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount %s: %w", from, err)
		}
		dirs = append(dirs, dir)
	}
	// A link to the machine's own library.
	const cache = "/etc/ld.so.cache"
	if err := os.Remove(cache); err != nil && !os.IsNotExist(err) {
		return err
	}
	out, err := exec.Command("/sbin/ldconfig", append([]string{"-X", "-C", cache}, dirs...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// require skips a test, with the reason, if the runtimes are missing. In CI it fails the test.
func require(tb testing.TB) (kit, *node.Kit) {
	tb.Helper()
	e2e.Require(tb)
	var k kit
	for _, u := range packages.Require(tb) {
		switch u.Name {
		case "podman":
			k.Podman = u.Path("usr/bin/podman")
		case "conmon":
			k.Conmon = u.Path("usr/bin/conmon")
		case "crun":
			k.Crun = u.Path("usr/bin/crun")
		case "uidmap":
			k.Uidmap = u.Path("usr/bin")
		case "buildah":
			k.Buildah = u.Path("usr/bin/buildah")
		}
	}
	common, err := node.KitFromEnv()
	if err != nil {
		tb.Fatal(err)
	}
	return k, common
}
