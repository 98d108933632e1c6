// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/parts"
)

// kitEnv carries the kit into the jail.
const kitEnv = "JACKFIELD_DPDK"

// kit is where the packages are, or why they are not.
type kit struct {
	Version string   // of testpmd's package
	Dirs    []string // of the unpacked packages
	OVS     []string // of those of Open vSwitch
	Missing string
}

// Main is e2e.Main for packages with tests that need DPDK: it fetches that too,
// before the jail.
func Main(m *testing.M) {
	e2e.MainWith(m, "dpdk", prepare, nil)
}

// prepare fetches what is not in the cache. That the archive cannot be had is for
// Require to tell; anything else is an error.
func prepare(ctx context.Context) error {
	var k kit
	got, err := fetch(ctx)
	switch {
	case errdefs.IsUnavailable(err):
		k.Missing = err.Error()
	case err != nil:
		return err
	default:
		k.Version = got[0].FullVersion
		for i, u := range got {
			if i < len(parts.DPDK()) {
				k.Dirs = append(k.Dirs, u.Dir)
			} else {
				k.OVS = append(k.OVS, u.Dir)
			}
		}
	}
	data, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return os.Setenv(kitEnv, string(data))
}

func fetch(ctx context.Context) ([]parts.Unpacked, error) {
	store, err := parts.Open()
	if err != nil {
		return nil, err
	}
	store.Logf = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "dpdk: "+format+"\n", args...) }
	return store.Ensure(ctx, append(parts.DPDK(), parts.OVS()...)...)
}

// Require skips a test where DPDK or a runtime cannot be had, and says why. In CI
// that is a failure.
func Require(tb testing.TB) {
	tb.Helper()
	load(tb)
}

func load(tb testing.TB) kit {
	tb.Helper()
	e2e.Require(tb)
	var k kit
	if err := json.Unmarshal([]byte(os.Getenv(kitEnv)), &k); err != nil {
		tb.Fatalf("the package's TestMain does not call dpdk.Main: read %s: %v", kitEnv, err)
	}
	if k.Missing == "" {
		return k
	}
	if os.Getenv("CI") == "true" {
		tb.Fatalf("no DPDK, and CI promises that there is: %s", k.Missing)
	}
	tb.Skipf("skipped: no DPDK: %s", k.Missing)
	return k
}
