// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// staleNode returns a node with a pod that has two PCI functions and a socket, and with
// device-info and the records of Multus and libcni of other sandboxes.
func staleNode(t testing.TB, stale int) *node {
	t.Helper()
	n := newNode(t)
	n.allocate("c1: intel.com/vf="+devA, "c2: intel.com/vf="+devB)
	n.writeMultusRecord(vfNetworkEntry("ns/east", devA), vfNetworkEntry("ns/west", devB), networkEntry("ns/sock"))
	for i, d := range []string{devA, devB} {
		network := []string{"east", "west"}[i]
		n.writeCNIFile("ns/"+network, fmt.Sprintf("net%d", i+1), pciInfo(d))
		n.writeDPFile(vf, d, pciInfo(d))
		n.writeCNIResult(network+"-conf", fmt.Sprintf("net%d", i+1), d)
	}
	n.writeCNIFile("ns/sock", "net3", vhostInfo)
	link := func(pattern string) {
		first := n.path(fmt.Sprintf(pattern, 0))
		testkit.Must(t, os.WriteFile(first, []byte(pciInfo(devC)), 0o600))
		for i := 1; i < stale; i++ {
			testkit.Must(t, os.Link(first, n.path(fmt.Sprintf(pattern, i))))
		}
	}
	if stale > 0 {
		link(filepath.Join(deviceinfo.DefaultCNIDir, "ns-east-%064x_net1"))
		link(filepath.Join(multusDir, "%064x"))
		link(filepath.Join(multusDir, "results", "east-conf-%064x-net1"))
	}
	return n
}

// Stale files of other sandboxes do not make a call do more work: it allocates the same with and
// without them. The bound leaves room for what the runtime allocates meanwhile.
func TestStaleFilesDoNotSlowLookup(t *testing.T) {
	count := func(stale int) float64 {
		f := staleNode(t, stale).newFinder()
		return testing.AllocsPerRun(20, func() {
			as, _, err := f.Search(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA)).Find()
			if err != nil || len(as) != 3 || as[0].Owner != OwnedHere || as[1].Owner != OwnedElsewhere {
				t.Fatal(as, err)
			}
		})
	}
	if lean, full := count(0), count(10000); full > 1.2*lean {
		t.Errorf("a call allocates %v times with 10000 stale files, %v times without", full, lean)
	}
}
