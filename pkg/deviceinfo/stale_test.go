// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// newStaleNode returns a node with two files of one sandbox, and stale files of others.
func newStaleNode(t testing.TB, stale int) string {
	t.Helper()
	root, dir := newTestNode(t)
	writeFile(t, dir, "ns-nad-"+testID+"_net1", infoText("vhost-user", vhostMap))
	writeFile(t, dir, "ns-nad-"+testID+"_net2", infoText("pci", pciMap))
	first := filepath.Join(dir, fmt.Sprintf("ns-nad-%064x_net1", 0))
	for i := range stale {
		if i == 0 {
			writeFile(t, dir, filepath.Base(first), infoText("pci", pciMap))
			continue
		}
		must(t, os.Link(first, filepath.Join(dir, fmt.Sprintf("ns-nad-%064x_net1", i))))
	}
	return root
}

// Stale files of other sandboxes do not make a lookup do more work: it allocates the same with and
// without them, and examines the names of its own sandbox alone.
func TestStaleFilesDoNotSlowLookup(t *testing.T) {
	count := func(stale int) float64 {
		ix := testIndex(t, newStaleNode(t, stale))
		allocations := testing.AllocsPerRun(20, func() {
			if es, err := ix.Lookup(testID); err != nil || len(es) != 2 {
				t.Fatal(es, err)
			}
		})
		if examined := len(ix.names[testID]); examined != 2 {
			t.Errorf("a lookup examines %d names, want 2", examined)
		}
		return allocations
	}
	if lean, full := count(0), count(10000); full > 1.2*lean {
		t.Errorf("a lookup allocates %v times with 10000 stale files, %v times without", full, lean)
	}
}
