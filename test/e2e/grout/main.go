// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/fetched"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/parts"
)

const packages = fetched.Set("grout")

// Main takes over TestMain. It fetches grout and runs the tests in a jail.
func Main(m *testing.M) {
	flag.Parse()
	if jail.Outside() && impossible() != nil {
		os.Exit(m.Run())
	}
	os.Exit(jail.Run(func() ([]string, error) {
		err := Prepare(context.Background())
		return []string{packages.Env()}, err
	}, m.Run))
}

// Prepare fetches grout, outside of the jail. If the archive is unavailable, Start reports it.
func Prepare(ctx context.Context) error { return packages.Fetch(ctx, parts.Grout()...) }

func impossible() error {
	if testing.Short() {
		return errors.New("left out of short runs")
	}
	if ok, why := parts.Debian(); !ok {
		return errors.New(why)
	}
	return jail.Possible()
}

// load returns the directories of the packages. If grout cannot run the test is skipped, and fails in CI.
func load(tb testing.TB) []string {
	tb.Helper()
	if jail.Inside() {
		return fetched.Dirs(packages.Require(tb))
	}
	err := impossible()
	if err == nil {
		tb.Fatal("the package's TestMain does not call grout.Main")
	}
	if os.Getenv("CI") == "true" && !testing.Short() {
		tb.Fatalf("no grout, and CI promises that there is: %v", err)
	}
	tb.Skipf("skipped: no grout: %v", err)
	return nil
}
