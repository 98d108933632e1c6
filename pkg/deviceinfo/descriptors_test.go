// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"os"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func openDescriptors(t testing.TB) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	testkit.Must(t, err)
	return len(es)
}

func TestNoDescriptorIsLeaked(t *testing.T) {
	root, dir := newTestNode(t)
	writeFile(t, dir, "ns-nad-"+testID+"_good", infoText("pci", pciMap))
	writeHostileFiles(t, dir)
	store, dp := CNIDir{Root: root}, DevicePluginDir{Root: root}
	once := func() {
		_, err := CNIDir{Root: root}.ReadSandbox(testID)
		testkit.Must(t, err)
		pci, err := Parse([]byte(infoText("pci", pciMap)), "f")
		testkit.Must(t, err)
		_, err = dp.Save("r", "1", pci)
		testkit.Must(t, err)
		_, _, err = store.CopyFrom(dp, "r", "1", "n-y_a")
		testkit.Must(t, err)
		_, _, err = store.CopyFrom(dp, "r", "none", "n-y_a")
		if !errdefs.IsNotFound(err) {
			t.Error(err)
		}
		testkit.Must(t, store.Update("n-y_a", func(i *Info) (*Info, error) { return i, nil }))
		if store.Write("n-y_a", &Info{}) == nil {
			t.Error("an invalid device-info was written")
		}
		if _, err := store.Read("ns-nad-" + testID + "_fifo"); err == nil {
			t.Error("a FIFO was read")
		}
		_, err = store.List()
		testkit.Must(t, err)
		_, err = store.RemoveSandbox("y")
		testkit.Must(t, err)
		testkit.Must(t, dp.Remove("r", "1"))
	}
	once()
	before := openDescriptors(t)
	for range 20 {
		once()
	}
	if after := openDescriptors(t); after > before { // the garbage collector may close descriptors of other tests
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
