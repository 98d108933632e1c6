// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"flag"
	"os"
	"testing"

	"github.com/jackfield/jackfield/test/e2e/jail"
)

// TestMain runs the benchmarks, as root, in namespaces of their own, where /run is
// a tmpfs as on a node.
func TestMain(m *testing.M) {
	flag.Parse()
	if jail.Outside() && jail.Possible() != nil {
		os.Exit(m.Run())
	}
	os.Exit(jail.Run(nil, m.Run))
}
