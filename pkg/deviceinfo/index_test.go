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

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/host/watch"
)

func testIndex(t testing.TB, root string) *Index {
	t.Helper()
	ix, err := NewIndex(CNIDir{Root: root})
	must(t, err)
	t.Cleanup(func() { must(t, ix.Close()) })
	return ix
}

// longID returns an ID of containerd's form that stands for a short one.
func longID(short string) string { return fmt.Sprintf("%064x", short) }

// fileOf returns the name of a file of the sandbox longID(short).
func fileOf(short, ifName string) string { return "n-" + longID(short) + "_" + ifName }

// wantInterfaces checks that a lookup finds files of exactly the given interfaces.
func wantInterfaces(t testing.TB, ix *Index, id string, ifNames ...string) {
	t.Helper()
	any, err := ix.HasSandbox(id)
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
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	pci := infoText("pci", pciMap)
	at := func(name string) string { return filepath.Join(dir, name) }
	wantInterfaces(t, ix, longID("x"))
	writeFile(t, dir, fileOf("x", "a"), pci) // created
	wantInterfaces(t, ix, longID("x"), "a")
	writeFile(t, dir, "tmp", pci)
	must(t, os.Rename(at("tmp"), at(fileOf("x", "b")))) // renamed into place
	wantInterfaces(t, ix, longID("x"), "a", "b")
	must(t, os.Link(at(fileOf("x", "a")), at(fileOf("x", "c"))))
	wantInterfaces(t, ix, longID("x"), "a", "b", "c")
	must(t, os.Rename(at(fileOf("x", "c")), at(fileOf("y", "c")))) // to another sandbox
	wantInterfaces(t, ix, longID("x"), "a", "b")
	wantInterfaces(t, ix, longID("y"), "c")
	must(t, os.Rename(at(fileOf("y", "c")), at(fileOf("x", "a")))) // over another file (both names are links of one, so nothing happens)
	must(t, os.Remove(at(fileOf("y", "c"))))
	wantInterfaces(t, ix, longID("y"))
	must(t, os.Rename(at(fileOf("x", "b")), filepath.Join(filepath.Dir(dir), "away")))
	wantInterfaces(t, ix, longID("x"), "a")
	must(t, os.Remove(at(fileOf("x", "a"))))
	wantInterfaces(t, ix, longID("x"))
	if ix.reloads != 1 {
		t.Errorf("%d listings, want one", ix.reloads)
	}
	if len(ix.names) != 0 {
		t.Errorf("names are left: %v", ix.names)
	}
}

func TestIndexFollowsReplacedDirectories(t *testing.T) {
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	pci := infoText("pci", pciMap)
	writeFile(t, dir, fileOf("x", "a"), pci)
	wantInterfaces(t, ix, longID("x"), "a")

	must(t, os.RemoveAll(dir)) // removed
	wantInterfaces(t, ix, longID("x"))
	must(t, os.Mkdir(dir, 0o755)) // re-created
	writeFile(t, dir, fileOf("x", "b"), pci)
	wantInterfaces(t, ix, longID("x"), "b")

	must(t, os.RemoveAll(dir)) // removed and re-created between two lookups
	must(t, os.Mkdir(dir, 0o755))
	writeFile(t, dir, fileOf("x", "c"), pci)
	wantInterfaces(t, ix, longID("x"), "c")

	must(t, os.Rename(dir, dir+".old")) // moved away
	wantInterfaces(t, ix, longID("x"))
	must(t, os.Mkdir(dir+".new", 0o755))
	writeFile(t, dir+".new", fileOf("x", "d"), pci)
	must(t, os.Rename(dir+".new", dir)) // another directory takes its place
	wantInterfaces(t, ix, longID("x"), "d")
	writeFile(t, dir+".old", fileOf("x", "e"), pci) // in the former directory
	wantInterfaces(t, ix, longID("x"), "d")

	run := filepath.Join(root, "run") // a symlink in the path changes
	must(t, os.CopyFS(filepath.Join(root, "run2"), os.DirFS(run)))
	must(t, os.Symlink("/run2", filepath.Join(root, "var/run2")))
	must(t, os.Rename(filepath.Join(root, "var/run2"), filepath.Join(root, "var/run")))
	writeFile(t, filepath.Join(root, "run2/k8s.cni.cncf.io/devinfo/cni"), fileOf("x", "f"), pci)
	wantInterfaces(t, ix, longID("x"), "d", "f")

	must(t, os.Rename(dir, dir+".1")) // moved away and back
	wantInterfaces(t, ix, longID("x"), "d", "f")
}

func TestIndexSurvivesLostEvents(t *testing.T) {
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	pci := infoText("pci", pciMap)
	writeFile(t, dir, fileOf("x", "old"), pci)
	wantInterfaces(t, ix, longID("x"), "old")
	must(t, os.Remove(filepath.Join(dir, fileOf("x", "old"))))
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	writeFile(t, dir, "a", "")
	most := 1 << 14 // default limit of events that the kernel queues
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err == nil {
		_, err = fmt.Sscan(string(text), &most)
		must(t, err)
	}
	for range most / 2 { // four events each
		must(t, os.Rename(a, b))
		must(t, os.Rename(b, a))
	}
	writeFile(t, dir, fileOf("x", "new"), pci)
	wantInterfaces(t, ix, longID("x"), "new")
	if ix.reloads != 2 {
		t.Errorf("%d listings, want two, the second because events were lost", ix.reloads)
	}
	writeFile(t, dir, fileOf("x", "newer"), pci)
	wantInterfaces(t, ix, longID("x"), "new", "newer")
	if ix.reloads != 2 {
		t.Errorf("%d listings: the watch failed", ix.reloads)
	}
}

// Without a watch, lookups still find every file.
func TestIndexWithoutWatch(t *testing.T) {
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	must(t, ix.queue.Close()) // watches fail
	writeFile(t, dir, fileOf("x", "a"), infoText("pci", pciMap))
	wantInterfaces(t, ix, longID("x"), "a")
	writeFile(t, dir, fileOf("x", "b"), infoText("pci", pciMap))
	wantInterfaces(t, ix, longID("x"), "a", "b")
	ix.queue = watch.Queue{}
	wantInterfaces(t, ix, longID("x"), "a", "b")
	if ix.names == nil || len(ix.names[longID("x")]) != 2 {
		t.Error("no watch after inotify is usable again")
	}
}

func TestIndexIsBounded(t *testing.T) {
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	ix.maxNames = 10
	pci := infoText("pci", pciMap)
	for i := range 30 {
		writeFile(t, dir, fileOf(fmt.Sprint(i), "a"), pci)
	}
	for i := range 30 {
		wantInterfaces(t, ix, longID(fmt.Sprint(i)), "a")
	}
	writeFile(t, dir, fileOf("7", "b"), pci)
	wantInterfaces(t, ix, longID("7"), "a", "b")
	if len(ix.names) > 10 || ix.names != nil {
		t.Errorf("%d names in memory, watched %v", len(ix.names), ix.names)
	}
	for i := range 30 {
		if i != 7 {
			must(t, os.Remove(filepath.Join(dir, fileOf(fmt.Sprint(i), "a"))))
		}
	}
	wantInterfaces(t, ix, longID("7"), "a", "b")
	if ix.names == nil || len(ix.names[longID("7")]) != 2 {
		t.Errorf("%d names in memory, watched %v; want 2 that fit", len(ix.names), ix.names)
	}
}

// Names and IDs may contain the separators. The index must find the same files as a listing.
func TestIndexFindsSameFilesAsListing(t *testing.T) {
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	ix.maxNames = 200
	r := rand.New(rand.NewPCG(3, 4))
	word := func(most int) string {
		var b strings.Builder
		for range 1 + r.IntN(most) {
			b.WriteByte("--__ab."[r.IntN(7)])
		}
		return b.String()
	}
	// In half of the names and lookups, "a" in an ID stands for 64 digits, as of containerd.
	long := strings.NewReplacer("a", testID)
	pci := []byte(infoText("pci", pciMap))
	found := 0
	var present []string
	for range 4000 {
		name := word(12)
		if r.IntN(2) == 0 {
			name = long.Replace(name)
		}
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
		if r.IntN(2) == 0 {
			id = long.Replace(id)
		}
		want, err := CNIDir{Root: root}.ReadSandbox(id)
		must(t, err)
		got, err := ix.Lookup(id)
		must(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("sandbox %q -listing +index:\n%s", id, diff)
		}
		found += len(got)
	}
	if found < 1000 {
		t.Errorf("all lookups found only %d files; the test covers little", found)
	}
}

// A new file is found by the next lookup.
func TestIndexFindsNewFileAtNextLookup(t *testing.T) {
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	pci := []byte(infoText("pci", pciMap))
	tmp := filepath.Join(dir, "tmp")
	for i := range 1500 {
		must(t, os.WriteFile(tmp, pci, 0o644))
		id := fmt.Sprintf("%064x", i)
		must(t, os.Rename(tmp, filepath.Join(dir, "ns-nad-"+id+"_net1")))
		wantInterfaces(t, ix, id, "net1")
	}
	if ix.reloads != 1 {
		t.Errorf("%d listings, want one", ix.reloads)
	}
}

func TestIndexIsUsedConcurrently(t *testing.T) {
	root, dir := newTestNode(t)
	ix := testIndex(t, root)
	store := CNIDir{Root: root}
	pci, err := Parse([]byte(infoText("pci", pciMap)), "f")
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
				// The directory is replaced meanwhile, so the file may be in a former one.
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

func TestLookupInClosedIndexFails(t *testing.T) {
	root, dir := newTestNode(t)
	ix, err := NewIndex(CNIDir{Root: root})
	must(t, err)
	writeFile(t, dir, fileOf("x", "a"), infoText("pci", pciMap))
	wantInterfaces(t, ix, longID("x"), "a")
	must(t, ix.Close())
	must(t, ix.Close())
	if _, err := ix.Lookup("x"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("lookup after Close: %v", err)
	}
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(es)
}

func TestNoDescriptorIsLeaked(t *testing.T) {
	root, dir := newTestNode(t)
	writeFile(t, dir, "ns-nad-"+testID+"_good", infoText("pci", pciMap))
	writeHostileFiles(t, dir)
	store, dp := CNIDir{Root: root}, DevicePluginDir{Root: root}
	once := func() {
		ix, err := NewIndex(CNIDir{Root: root})
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
		_, err = CNIDir{Root: root}.ReadSandbox(testID)
		must(t, err)
		pci, err := Parse([]byte(infoText("pci", pciMap)), "f")
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
	if after := openDescriptors(t); after > before { // the garbage collector may close descriptors of other tests
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
