// SPDX-License-Identifier: Apache-2.0

package podman

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/fetched"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/e2e/node"
	"github.com/jackfield/jackfield/test/e2e/packaged"
	"github.com/jackfield/jackfield/test/ovs"
	"github.com/jackfield/jackfield/test/parts"
)

const packages = fetched.Set("Podman 5")

// Main is e2e.Main for this package. It also fetches Podman 5, grout and Open vSwitch, before the jail.
func Main(m *testing.M) {
	e2e.MainWith(m, "podman", func(ctx context.Context) error {
		return errors.Join(packages.Fetch(ctx, parts.Podman5()...), grout.Prepare(ctx), ovs.Prepare(), packaged.Build(ctx))
	}, mountUsr)
}

// mountUsr puts the packages over the jail's /usr. Podman, netavark and crun then have the paths of their packages, and
// the C library of their suite, with which older programs run too.
func mountUsr() error {
	unpacked, err := packages.Packages()
	if err != nil || len(unpacked) == 0 {
		return err
	}
	var lower []string
	for _, u := range unpacked {
		lower = append(lower, u.Path("usr"))
	}
	options := "lowerdir=" + strings.Join(append(lower, "/usr"), ":")
	if err := unix.Mount("overlay", "/usr", "overlay", unix.MS_RDONLY, options); err != nil {
		return fmt.Errorf("mount Podman's packages over /usr: %w", err)
	}
	return e2e.HideUnifiedCgroups()
}

// require skips a test, with the reason, if Podman is missing. In CI it fails the test.
func require(tb testing.TB) *node.Kit {
	tb.Helper()
	e2e.Require(tb)
	packages.Require(tb)
	common, err := node.KitFromEnv()
	if err != nil {
		tb.Fatal(err)
	}
	return common
}
