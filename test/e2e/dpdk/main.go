// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/fetched"
	"github.com/jackfield/jackfield/test/e2e/grout"
	"github.com/jackfield/jackfield/test/parts"
)

const packages = fetched.Set("DPDK")

// kit has the packages.
type kit struct {
	Version string   // of testpmd's package
	Dirs    []string // of the unpacked packages
	OVS     []string // of those of Open vSwitch
	Headers []string // of those with DPDK's headers
}

// Main is e2e.Main for packages with tests that need DPDK or grout. It also fetches these, before the jail.
func Main(m *testing.M) {
	e2e.MainWith(m, "dpdk", func(ctx context.Context) error {
		needed := slices.Concat(parts.DPDK(), parts.OVS(), parts.DPDKHeaders())
		return errors.Join(packages.Fetch(ctx, needed...), grout.Prepare(ctx))
	}, nil)
}

// Require skips a test, with the reason, if DPDK or a runtime is missing. In CI it fails the test.
func Require(tb testing.TB) {
	tb.Helper()
	load(tb)
}

func load(tb testing.TB) kit {
	tb.Helper()
	e2e.Require(tb)
	got := packages.Require(tb)
	dpdk, ovs := len(parts.DPDK()), len(parts.DPDK())+len(parts.OVS())
	return kit{
		Version: got[0].FullVersion,
		Dirs:    fetched.Dirs(got[:dpdk]),
		OVS:     fetched.Dirs(got[dpdk:ovs]),
		Headers: fetched.Dirs(got[ovs:]),
	}
}
