// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

func testIndex(t testing.TB, root hostfs.Root, opts IndexOptions) *Index {
	t.Helper()
	ix, err := NewIndex(root, "", opts)
	must(t, err)
	t.Cleanup(func() { must(t, ix.Close()) })
	return ix
}

// has asserts which interfaces a lookup finds.
func has(t testing.TB, ix *Index, id string, ifNames ...string) {
	t.Helper()
	any, err := ix.Has(id)
	must(t, err)
	es, err := ix.Lookup(id)
	must(t, err)
	if any != (len(es) > 0) {
		t.Errorf("Has(%q) is %v, and Lookup finds %d files", id, any, len(es))
	}
	var got []string
	for _, e := range es {
		got = append(got, e.IfName)
		if e.Err != nil {
			t.Errorf("%s: %v", e.File, e.Err)
		}
	}
	if diff := cmp.Diff(ifNames, got); diff != "" {
		t.Fatalf("sandbox %s -want +got:\n%s", id, diff)
	}
}

func TestIndexFollowsTheDirectory(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{})
	pci := info("pci", pciMap)
	at := func(name string) string { return filepath.Join(dir, name) }
	has(t, ix, "x")
	put(t, dir, "n-x_a", pci) // created
	has(t, ix, "x", "a")
	put(t, dir, "tmp", pci)
	must(t, os.Rename(at("tmp"), at("n-x_b"))) // renamed into place
	has(t, ix, "x", "a", "b")
	must(t, os.Link(at("n-x_a"), at("n-x_c")))
	has(t, ix, "x", "a", "b", "c")
	must(t, os.Rename(at("n-x_c"), at("n-y_c"))) // to another sandbox
	has(t, ix, "x", "a", "b")
	has(t, ix, "y", "c")
	must(t, os.Rename(at("n-y_c"), at("n-x_a"))) // over another file (both names are links of one, so nothing happens)
	must(t, os.Remove(at("n-y_c")))
	has(t, ix, "y")
	must(t, os.Rename(at("n-x_b"), filepath.Join(filepath.Dir(dir), "away")))
	has(t, ix, "x", "a")
	must(t, os.Remove(at("n-x_a")))
	has(t, ix, "x")
	if ix.reloads != 1 {
		t.Errorf("%d listings, want one", ix.reloads)
	}
	if len(ix.names) != 0 || len(ix.byTail) != 0 {
		t.Errorf("names are left: %v %v", ix.names, ix.byTail)
	}
}

func TestIndexFollowsReplacedDirectories(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{})
	pci := info("pci", pciMap)
	put(t, dir, "n-x_a", pci)
	has(t, ix, "x", "a")

	must(t, os.RemoveAll(dir)) // removed
	has(t, ix, "x")
	must(t, os.Mkdir(dir, 0o755)) // made anew
	put(t, dir, "n-x_b", pci)
	has(t, ix, "x", "b")

	must(t, os.RemoveAll(dir)) // both between two lookups
	must(t, os.Mkdir(dir, 0o755))
	put(t, dir, "n-x_c", pci)
	has(t, ix, "x", "c")

	must(t, os.Rename(dir, dir+".old")) // moved away
	has(t, ix, "x")
	must(t, os.Mkdir(dir+".new", 0o755))
	put(t, dir+".new", "n-x_d", pci)
	must(t, os.Rename(dir+".new", dir)) // another one moved in
	has(t, ix, "x", "d")
	put(t, dir+".old", "n-x_e", pci) // of no concern any more
	has(t, ix, "x", "d")

	run := filepath.Join(root.Dir(), "run") // a symlink on the way changes
	must(t, os.CopyFS(filepath.Join(root.Dir(), "run2"), os.DirFS(run)))
	must(t, os.Symlink("/run2", filepath.Join(root.Dir(), "var/run2")))
	must(t, os.Rename(filepath.Join(root.Dir(), "var/run2"), filepath.Join(root.Dir(), "var/run")))
	put(t, filepath.Join(root.Dir(), "run2/k8s.cni.cncf.io/devinfo/cni"), "n-x_f", pci)
	has(t, ix, "x", "d", "f")

	must(t, os.Rename(dir, dir+".1")) // away and back: it is the same
	has(t, ix, "x", "d", "f")
}

func TestIndexSurvivesLostEvents(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{})
	pci := info("pci", pciMap)
	put(t, dir, "n-x_old", pci)
	has(t, ix, "x", "old")
	must(t, os.Remove(filepath.Join(dir, "n-x_old")))
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	put(t, dir, "a", "")
	most := 1 << 14 // events that the kernel keeps, by default
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err == nil {
		_, err = fmt.Sscan(string(text), &most)
		must(t, err)
	}
	for range most / 2 { // four events each
		must(t, os.Rename(a, b))
		must(t, os.Rename(b, a))
	}
	put(t, dir, "n-x_new", pci)
	has(t, ix, "x", "new")
	if ix.reloads != 2 {
		t.Errorf("%d listings, want two, the second because events were lost", ix.reloads)
	}
	put(t, dir, "n-x_newer", pci)
	has(t, ix, "x", "new", "newer")
	if ix.reloads != 2 {
		t.Errorf("%d listings, the watch does not work any more", ix.reloads)
	}
}

// Without a watch, lookups are as right as ever.
func TestIndexWithoutWatch(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{})
	null, err := os.Open("/dev/null") // no inotify descriptor: watches fail
	must(t, err)
	defer null.Close()
	ix.watch.fd = int(null.Fd())
	defer func() { ix.watch.fd = -1 }()
	put(t, dir, "n-x_a", info("pci", pciMap))
	has(t, ix, "x", "a")
	put(t, dir, "n-x_b", info("pci", pciMap))
	has(t, ix, "x", "a", "b")
	ix.watch.fd = -1
	has(t, ix, "x", "a", "b")
	if !ix.watch.active || len(ix.names) != 2 {
		t.Error("no watch although there can be one again")
	}
}

func TestIndexIsBounded(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{MaxNames: 10})
	pci := info("pci", pciMap)
	for i := range 30 {
		put(t, dir, fmt.Sprintf("n-%d_a", i), pci)
	}
	for i := range 30 {
		has(t, ix, fmt.Sprint(i), "a")
	}
	put(t, dir, "n-7_b", pci)
	has(t, ix, "7", "a", "b")
	if len(ix.names) > 10 || !ix.full {
		t.Errorf("%d names in memory, full %v", len(ix.names), ix.full)
	}
	for i := range 30 {
		if i != 7 {
			must(t, os.Remove(filepath.Join(dir, fmt.Sprintf("n-%d_a", i))))
		}
	}
	has(t, ix, "7", "a", "b")
	if ix.full || len(ix.names) != 2 {
		t.Errorf("%d names in memory, full %v; want 2 that fit", len(ix.names), ix.full)
	}
}

// Names and IDs made of the very marks that separate them: the index must find
// what a listing finds.
func TestIndexFindsWhatAListingFinds(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{MaxNames: 200})
	r := rand.New(rand.NewPCG(3, 4))
	word := func(most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteByte("--__ab."[r.IntN(7)])
		}
		return b.String()
	}
	pci := []byte(info("pci", pciMap))
	found := 0
	var present []string
	for range 4000 {
		name := word(12)
		if r.IntN(40) == 0 {
			name += "-" + strings.Repeat("a", 120) + "_" + word(16)
		}
		if len(present) > 0 && r.IntN(3) == 0 {
			i := r.IntN(len(present))
			must(t, os.RemoveAll(filepath.Join(dir, present[i])))
			present = append(present[:i], present[i+1:]...)
		} else if os.WriteFile(filepath.Join(dir, name), pci, 0o644) == nil {
			present = append(present, name)
		}
		if r.IntN(500) == 0 {
			must(t, os.RemoveAll(dir))
			must(t, os.Mkdir(dir, 0o755))
			present = nil
		}
		id := word(5)
		want, err := ReadSandbox(root, "", id)
		must(t, err)
		got, err := ix.Lookup(id)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("sandbox %q -listing +index:\n%s", id, diff)
		}
		found += len(got)
	}
	if found < 1000 {
		t.Errorf("only %d files were found in all lookups; the test tests little", found)
	}
}

// A file is seen by the very next lookup, always.
func TestIndexMissesNothing(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{})
	pci := []byte(info("pci", pciMap))
	tmp := filepath.Join(dir, "tmp")
	for i := range 1500 {
		must(t, os.WriteFile(tmp, pci, 0o644))
		id := fmt.Sprintf("%064x", i)
		must(t, os.Rename(tmp, filepath.Join(dir, "ns-nad-"+id+"_net1")))
		has(t, ix, id, "net1")
	}
	if ix.reloads != 1 {
		t.Errorf("%d listings, want one", ix.reloads)
	}
}

func TestIndexIsUsedConcurrently(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{})
	store := CNIDir{Root: root}
	pci, err := Parse([]byte(info("pci", pciMap)), "f")
	must(t, err)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 40 {
				id := fmt.Sprintf("%d-%d", w, i)
				name := "n-" + id + "_net1"
				path, err := store.Path(name)
				if err != nil {
					t.Error(err)
					return
				}
				f, err := store.File(path)
				if err == nil {
					err = f.Write(pci)
				}
				if err != nil {
					t.Error(err)
					return
				}
				// The directory is replaced meanwhile, so the file may be elsewhere.
				if es, err := ix.Lookup(id); err != nil || len(es) > 0 && es[0].Err != nil {
					t.Errorf("%s: %v, %v", id, es, err)
				}
				if w == 0 && i%10 == 9 {
					if err := os.Rename(dir, fmt.Sprintf("%s.%d", dir, i)); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestClosedIndex(t *testing.T) {
	root, dir := testNode(t)
	ix, err := NewIndex(root, "", IndexOptions{})
	must(t, err)
	put(t, dir, "n-x_a", info("pci", pciMap))
	has(t, ix, "x", "a")
	must(t, ix.Close())
	must(t, ix.Close())
	if _, err := ix.Lookup("x"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a lookup behind Close: %v", err)
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(es)
}

func TestNoDescriptorIsLeaked(t *testing.T) {
	root, dir := testNode(t)
	put(t, dir, "ns-nad-"+testID+"_good", info("pci", pciMap))
	plantHostile(t, dir)
	store, dp := CNIDir{Root: root}, DevicePluginDir{Root: root}
	once := func() {
		ix, err := NewIndex(root, "", IndexOptions{})
		must(t, err)
		for range 3 {
			_, err = ix.Lookup(testID)
			must(t, err)
			must(t, os.Rename(dir, dir+".old"))
			_, err = ix.Lookup(testID)
			must(t, err)
			must(t, os.Rename(dir+".old", dir))
		}
		must(t, ix.Close())
		_, err = ReadSandbox(root, "", testID)
		must(t, err)
		pci, err := Parse([]byte(info("pci", pciMap)), "f")
		must(t, err)
		_, err = dp.Save("r", "1", pci)
		must(t, err)
		_, _, err = store.CopyFrom(dp, "r", "1", "n-y_a")
		must(t, err)
		_, _, err = store.CopyFrom(dp, "r", "none", "n-y_a")
		if !errdefs.IsNotFound(err) {
			t.Error(err)
		}
		f, err := store.File(DefaultCNIDir + "/n-y_a")
		must(t, err)
		must(t, f.Update(func(i *Info) (*Info, error) { return i, nil }))
		if f.Write(&Info{}) == nil {
			t.Error("an invalid device-info was written")
		}
		if _, err := store.Collect("ns-nad-" + testID + "_fifo"); err == nil {
			t.Error("a FIFO was read")
		}
		_, err = store.List()
		must(t, err)
		_, err = store.RemoveSandbox("y")
		must(t, err)
		must(t, dp.Remove("r", "1"))
	}
	once()
	before := openDescriptors(t)
	for range 20 {
		once()
	}
	if after := openDescriptors(t); after > before { // what others left to the collector may have gone
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// What is kept of a file is never older than the file.
func TestIndexSeesEveryChangeOfContent(t *testing.T) {
	root, dir := testNode(t)
	ix := testIndex(t, root, IndexOptions{})
	file := filepath.Join(dir, "n-x_a")
	address := func() string {
		t.Helper()
		es, err := ix.Lookup("x")
		must(t, err)
		if len(es) != 1 || es[0].Err != nil {
			t.Fatalf("found %+v", es)
		}
		es[0].Info.PCI.PCIAddress += "!" // what is handed out is the caller's
		return strings.TrimSuffix(es[0].Info.PCI.PCIAddress, "!")
	}
	write := func(n int) string {
		t.Helper()
		want := fmt.Sprintf("0000:03:00.%d", n%8)
		must(t, os.WriteFile(file, []byte(`{"type":"pci","version":"1.1.0","pci":{"pci-address":"`+want+`"}}`), 0o644))
		return want
	}
	for n := range 300 { // at once, in place, of the same size
		if want := write(n); address() != want {
			t.Fatalf("after write %d the address is not %s", n, want)
		}
	}
	want := write(1)
	time.Sleep(2 * settled)
	for range 3 {
		if got := address(); got != want {
			t.Fatalf("kept is %s, want %s", got, want)
		}
	}
	if len(ix.content.byName) != 1 {
		t.Errorf("%d files are kept, want one", len(ix.content.byName))
	}
	for n := range 300 {
		if want := write(n); address() != want {
			t.Fatalf("after write %d over what is kept the address is not %s", n, want)
		}
	}
	must(t, os.Remove(file))
	has(t, ix, "x")
	if len(ix.content.byName) != 0 {
		t.Error("the content of a file that is gone is kept")
	}
}
