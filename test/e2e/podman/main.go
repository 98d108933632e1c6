// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/parts"
)

// kitEnv carries the kit into the jail.
const kitEnv = "JACKFIELD_PODMAN5"

// kit says where the unpacked packages are, or why they are missing.
type kit struct {
	Version string // of Podman
	Dirs    []string
	Missing string
}

// Main is e2e.Main for this package. It also fetches Podman 5 and grout, before the jail.
func Main(m *testing.M) {
	e2e.MainWith(m, "podman", func(ctx context.Context) error { return errors.Join(prepare(ctx), grout.Prepare(ctx)) }, mountUsr)
}

// prepare fetches what is not in the cache. If the archive is unavailable, require reports it. Any other failure is
// an error.
func prepare(ctx context.Context) error {
	store, err := parts.Open()
	if err != nil {
		return err
	}
	store.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "podman: "+format+"\n", args...) }
	var k kit
	got, err := store.Ensure(ctx, parts.Podman5()...)
	switch {
	case errdefs.IsUnavailable(err):
		k.Missing = err.Error()
	case err != nil:
		return err
	default:
		k.Version = got[0].FullVersion
		for _, u := range got {
			k.Dirs = append(k.Dirs, u.Dir)
		}
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.Setenv(kitEnv, string(data))
}

// mountUsr puts the packages over the jail's /usr. Podman, netavark and crun then have the paths of their packages, and
// the C library of their suite, with which older programs run too.
func mountUsr() error {
	var k kit
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil || k.Missing != "" {
		return err
	}
	var lower []string
	for _, dir := range k.Dirs {
		lower = append(lower, filepath.Join(dir, "usr"))
	}
	options := "lowerdir=" + strings.Join(append(lower, "/usr"), ":")
	if err := unix.Mount("overlay", "/usr", "overlay", unix.MS_RDONLY, options); err != nil {
		return fmt.Errorf("mount Podman's packages over /usr: %w", err)
	}
	// crun assumes version 2 of cgroups if it sees both versions.
	if err := unix.Unmount("/sys/fs/cgroup/unified", unix.MNT_DETACH); err != nil && err != unix.EINVAL && err != unix.ENOENT {
		return fmt.Errorf("hide the second version of cgroups: %w", err)
	}
	if err := unix.Mount("tmpfs", "/sys/fs/cgroup/unified", "tmpfs", 0, "mode=755"); err != nil && err != unix.ENOENT {
		return fmt.Errorf("hide the second version of cgroups: %w", err)
	}
	return nil
}

// require skips a test, with the reason, if Podman is missing. In CI it fails the test.
func require(tb testing.TB) *node.Kit {
	tb.Helper()
	e2e.Require(tb)
	var k kit
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil {
		tb.Fatalf("the package's TestMain does not call podman.Main: read %s: %v", kitEnv, err)
	}
	if k.Missing != "" {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("no Podman 5, and CI promises that there is: %s", k.Missing)
		}
		tb.Skipf("skipped: no Podman 5: %s", k.Missing)
	}
	common, err := node.KitFromEnv()
	if err != nil {
		tb.Fatal(err)
	}
	return common
}
