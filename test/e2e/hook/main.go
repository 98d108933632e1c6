// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
)

// kitEnv carries the kit into the jail.
const kitEnv = "JACKFIELD_HOOK_KIT"

// kit has the paths of the runtimes, or the reason why they are missing.
type kit struct {
	Podman, Conmon, Crun, Buildah string
	Uidmap                        string   // the directory of newuidmap and newgidmap
	Libraries                     []string // directories
	Missing                       string
}

// Main is e2e.Main for this package. It also fetches Podman and crun, before the jail.
func Main(m *testing.M) {
	if os.Getenv(memlockEnv) != "" {
		fmt.Fprintln(os.Stderr, "hook:", runAsIfRaised(os.Args[1:]))
		os.Exit(1)
	}
	e2e.MainWith(m, "hook", prepare, inside)
}

func inside() error {
	// If crun sees both versions of cgroups, it assumes that the host uses version 2. The tests use version
	// 1. The test of version 2 mounts that version itself.
	if err := unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("hide the second version of cgroups: %w", err)
	}
	// Podman creates directories below this mount point, which must not be the machine's.
	if err := unix.Mount("tmpfs", "/sys/fs/cgroup/unified", "tmpfs", 0, "mode=755"); err != nil && err != unix.ENOENT {
		return fmt.Errorf("hide the second version of cgroups: %w", err)
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
	var k kit
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil || k.Missing != "" {
		return err
	}
	var dirs []string
	for i, from := range k.Libraries {
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

// prepare fetches what is not in the cache. If the archive is unavailable, require reports it. Any other
// failure is an error.
func prepare(ctx context.Context) error {
	store, err := parts.Open()
	if err != nil {
		return err
	}
	store.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "hook: "+format+"\n", args...) }
	var k kit
	got, err := store.Ensure(ctx, append(append(parts.Podman(), parts.Crun()...), parts.Uidmap(), parts.Buildah())...)
	switch {
	case errdefs.IsUnavailable(err):
		k.Missing = err.Error()
	case err != nil:
		return err
	default:
		k.Podman, k.Conmon = got[0].Path("usr/bin/podman"), got[1].Path("usr/bin/conmon")
		for _, u := range got {
			switch u.Name {
			case "crun":
				k.Crun = u.Path("usr/bin/crun")
			case "uidmap":
				k.Uidmap = u.Path("usr/bin")
			case "buildah":
				k.Buildah = u.Path("usr/bin/buildah")
			}
			for _, pattern := range []string{"usr/lib/*-linux-gnu", "lib/*-linux-gnu"} {
				dirs, err := filepath.Glob(u.Path(pattern))
				if err != nil {
					return err
				}
				k.Libraries = append(k.Libraries, dirs...)
			}
		}
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.Setenv(kitEnv, string(data))
}

// require skips a test, with the reason, if the runtimes are missing. In CI it fails the test.
func require(tb testing.TB) (kit, *node.Kit) {
	tb.Helper()
	e2e.Require(tb)
	var k kit
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil {
		tb.Fatalf("the package's TestMain does not call hook.Main: read %s: %v", kitEnv, err)
	}
	if k.Missing != "" {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("no Podman, and CI promises that there is: %s", k.Missing)
		}
		tb.Skipf("skipped: no Podman: %s", k.Missing)
	}
	common, err := node.KitFromEnv()
	if err != nil {
		tb.Fatal(err)
	}
	return k, common
}
