// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"fmt"
	"os"
	"testing"

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
