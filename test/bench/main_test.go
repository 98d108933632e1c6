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
)

// TestMain runs the benchmarks, as root, in namespaces of their own, where /run is
// a tmpfs as on a node.
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
	os.Exit(jail.Run(nil, m.Run))
}

// quantile is the value that percent of a hundred lie below. It sorts them.
func quantile(all []time.Duration, percent int) float64 {
	slices.Sort(all)
	return float64(all[len(all)*percent/100])
}

// reportPair reports the medians of what ran in turn, in units of so many nanoseconds,
// and their ratio: a busy moment of the machine does not move these.
func reportPair(b *testing.B, ours, theirs []time.Duration, name, theirName string, unit time.Duration) {
	a, p := quantile(ours, 50), quantile(theirs, 50)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(a/float64(unit), name)
	b.ReportMetric(p/float64(unit), theirName)
	b.ReportMetric(a/p, "x/"+theirName[:strings.LastIndexByte(theirName, '-')])
}
