// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/ovs"
)

// TestMain runs the benchmarks as root in new namespaces, where /run is a tmpfs as on a node.
func TestMain(m *testing.M) {
	if os.Getenv(asConnector) != "" {
		if err := connect(); err != nil {
			fmt.Fprintln(os.Stderr, "connector:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if jail.Outside() && jail.Possible() != nil {
		os.Exit(m.Run())
	}
	os.Exit(jail.Run(func() ([]string, error) { return nil, ovs.Prepare() }, m.Run))
}

// quantile returns the value below which the given percentage of all values lies. It sorts them.
func quantile(all []time.Duration, percent int) float64 {
	slices.Sort(all)
	return float64(all[len(all)*percent/100])
}

// reportPair reports the medians of two sides that took turns, in the given unit, and their
// ratio.
func reportPair(b *testing.B, ours, theirs []time.Duration, name, theirName string, unit time.Duration) {
	a, p := quantile(ours, 50), quantile(theirs, 50)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(a/float64(unit), name)
	b.ReportMetric(p/float64(unit), theirName)
	b.ReportMetric(a/p, "x/"+theirName[:strings.LastIndexByte(theirName, '-')])
}
