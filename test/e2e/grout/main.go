// SPDX-License-Identifier: Apache-2.0

package grout

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/parts"
)

// kitEnv carries the kit into the jail.
const kitEnv = "JACKFIELD_GROUT"

// kit says where the unpacked packages are, or why they are missing.
type kit struct {
	Dirs    []string
	Missing string
}

// Main takes over TestMain. It fetches grout and runs the tests in a jail.
func Main(m *testing.M) {
	flag.Parse()
	if jail.Outside() && impossible() != nil {
		os.Exit(m.Run())
	}
	os.Exit(jail.Run(func() ([]string, error) {
		if err := Prepare(context.Background()); err != nil {
			return nil, err
		}
		return []string{kitEnv + "=" + os.Getenv(kitEnv)}, nil
	}, m.Run))
}

// Prepare fetches what is not in the cache, outside of the jail. A package that the archive does not have at the
// moment is an error of Start.
func Prepare(ctx context.Context) error {
	var k kit
	store, err := parts.Open()
	if err != nil {
		return err
	}
	store.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "grout: "+format+"\n", args...) }
	got, err := store.Ensure(ctx, parts.Grout()...)
	switch {
	case errdefs.IsUnavailable(err):
		k.Missing = err.Error()
	case err != nil:
		return err
	}
	for _, u := range got {
		k.Dirs = append(k.Dirs, u.Dir)
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.Setenv(kitEnv, string(data))
}

func impossible() error {
	if testing.Short() {
		return errors.New("left out of short runs")
	}
	if ok, why := parts.Debian(); !ok {
		return errors.New(why)
	}
	return jail.Possible()
}

// load returns the kit. If grout is missing the test is skipped, and fails in CI.
func load(tb testing.TB) kit {
	tb.Helper()
	var k kit
	var err error
	if !jail.Inside() {
		err = impossible()
	}
	if err == nil {
		if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil {
			tb.Fatalf("the package's TestMain does not call grout.Main: read %s: %v", kitEnv, err)
		}
		if k.Missing == "" {
			return k
		}
		err = errors.New(k.Missing)
	}
	if os.Getenv("CI") == "true" && !testing.Short() {
		tb.Fatalf("no grout, and CI promises that there is: %v", err)
	}
	tb.Skipf("skipped: no grout: %v", err)
	return k
}
