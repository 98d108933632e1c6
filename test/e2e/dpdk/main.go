// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/parts"
)

// kitEnv carries the kit into the jail.
const kitEnv = "JACKFIELD_DPDK"

// kit has the paths of the packages, or the reason why they are missing.
type kit struct {
	Version string   // of testpmd's package
	Dirs    []string // of the unpacked packages
	OVS     []string // of those of Open vSwitch
	Headers []string // of those with DPDK's headers
	Missing string
}

// Main is e2e.Main for packages with tests that need DPDK or grout. It also fetches these, before the jail.
func Main(m *testing.M) {
	e2e.MainWith(m, "dpdk", func(ctx context.Context) error { return errors.Join(prepare(ctx), grout.Prepare(ctx)) }, nil)
}

// prepare fetches what is not in the cache. If the archive is unavailable, Require reports it. Any other
// failure is an error.
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
			switch {
			case i < len(parts.DPDK()):
				k.Dirs = append(k.Dirs, u.Dir)
			case i < len(parts.DPDK())+len(parts.OVS()):
				k.OVS = append(k.OVS, u.Dir)
			default:
				k.Headers = append(k.Headers, u.Dir)
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
	return store.Ensure(ctx, slices.Concat(parts.DPDK(), parts.OVS(), parts.DPDKHeaders())...)
}

// Require skips a test, with the reason, if DPDK or a runtime is missing. In CI it fails the test.
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
