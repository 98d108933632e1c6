// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/watch"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// newIndexNode returns an index of a host with a CNI directory behind the symlink /var/run, as on a real node, and the paths
// of the host's root and of that directory.
func newIndexNode(t testing.TB) (ix *infoIndex, root, dir string) {
	t.Helper()
	root = t.TempDir()
	testkit.Must(t, os.MkdirAll(filepath.Join(root, "var"), 0o755))
	testkit.Must(t, os.Symlink("/run", filepath.Join(root, "var/run")))
	dir = filepath.Join(root, "run/k8s.cni.cncf.io/devinfo/cni")
	testkit.Must(t, os.MkdirAll(dir, 0o755))
	host, err := hostfs.New(root)
	testkit.Must(t, err)
	ix, err = newInfoIndex(host, "")
	testkit.Must(t, err)
	t.Cleanup(func() { testkit.Must(t, ix.Close()) })
	return ix, root, dir
}

func writeFile(t testing.TB, dir, name, content string) {
	t.Helper()
	testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644))
}

const pciText = `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:02.2"}}`

// longID returns an ID of containerd's form that stands for a short one.
func longID(short string) string { return fmt.Sprintf("%064x", short) }

// fileOf returns the name of a file of the sandbox longID(short).
func fileOf(short, ifName string) string { return "n-" + longID(short) + "_" + ifName }

// wantInterfaces checks that a lookup finds files of exactly the given interfaces.
func wantInterfaces(t testing.TB, ix *infoIndex, id string, ifNames ...string) {
	t.Helper()
	any, err := ix.hasSandbox(id)
	testkit.Must(t, err)
	es, err := ix.lookup(id)
	testkit.Must(t, err)
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
	ix, _, dir := newIndexNode(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	wantInterfaces(t, ix, longID("x"))
	writeFile(t, dir, fileOf("x", "a"), pciText) // created
	wantInterfaces(t, ix, longID("x"), "a")
	writeFile(t, dir, "tmp", pciText)
	testkit.Must(t, os.Rename(at("tmp"), at(fileOf("x", "b")))) // renamed into place
	wantInterfaces(t, ix, longID("x"), "a", "b")
	testkit.Must(t, os.Link(at(fileOf("x", "a")), at(fileOf("x", "c"))))
	wantInterfaces(t, ix, longID("x"), "a", "b", "c")
	testkit.Must(t, os.Rename(at(fileOf("x", "c")), at(fileOf("y", "c")))) // to another sandbox
	wantInterfaces(t, ix, longID("x"), "a", "b")
	wantInterfaces(t, ix, longID("y"), "c")
	testkit.Must(t, os.Rename(at(fileOf("y", "c")), at(fileOf("x", "a")))) // over another file (both names are links of one, so nothing happens)
	testkit.Must(t, os.Remove(at(fileOf("y", "c"))))
	wantInterfaces(t, ix, longID("y"))
	testkit.Must(t, os.Rename(at(fileOf("x", "b")), filepath.Join(filepath.Dir(dir), "away")))
	wantInterfaces(t, ix, longID("x"), "a")
	testkit.Must(t, os.Remove(at(fileOf("x", "a"))))
	wantInterfaces(t, ix, longID("x"))
	if ix.reloads != 1 {
		t.Errorf("%d listings, want one", ix.reloads)
	}
	if len(ix.names) != 0 {
		t.Errorf("names are left: %v", ix.names)
	}
}

func TestIndexFollowsReplacedDirectories(t *testing.T) {
	ix, root, dir := newIndexNode(t)
	writeFile(t, dir, fileOf("x", "a"), pciText)
	wantInterfaces(t, ix, longID("x"), "a")

	testkit.Must(t, os.RemoveAll(dir)) // removed
	wantInterfaces(t, ix, longID("x"))
	testkit.Must(t, os.Mkdir(dir, 0o755)) // re-created
	writeFile(t, dir, fileOf("x", "b"), pciText)
	wantInterfaces(t, ix, longID("x"), "b")

	testkit.Must(t, os.RemoveAll(dir)) // removed and re-created between two lookups
	testkit.Must(t, os.Mkdir(dir, 0o755))
	writeFile(t, dir, fileOf("x", "c"), pciText)
	wantInterfaces(t, ix, longID("x"), "c")

	testkit.Must(t, os.Rename(dir, dir+".old")) // moved away
	wantInterfaces(t, ix, longID("x"))
	testkit.Must(t, os.Mkdir(dir+".new", 0o755))
	writeFile(t, dir+".new", fileOf("x", "d"), pciText)
	testkit.Must(t, os.Rename(dir+".new", dir)) // another directory takes its place
	wantInterfaces(t, ix, longID("x"), "d")
	writeFile(t, dir+".old", fileOf("x", "e"), pciText) // in the former directory
	wantInterfaces(t, ix, longID("x"), "d")

	run := filepath.Join(root, "run") // a symlink in the path changes
	testkit.Must(t, os.CopyFS(filepath.Join(root, "run2"), os.DirFS(run)))
	testkit.Must(t, os.Symlink("/run2", filepath.Join(root, "var/run2")))
	testkit.Must(t, os.Rename(filepath.Join(root, "var/run2"), filepath.Join(root, "var/run")))
	writeFile(t, filepath.Join(root, "run2/k8s.cni.cncf.io/devinfo/cni"), fileOf("x", "f"), pciText)
	wantInterfaces(t, ix, longID("x"), "d", "f")

	testkit.Must(t, os.Rename(dir, dir+".1")) // moved away and back
	wantInterfaces(t, ix, longID("x"), "d", "f")
}

func TestIndexSurvivesLostEvents(t *testing.T) {
	ix, _, dir := newIndexNode(t)
	writeFile(t, dir, fileOf("x", "old"), pciText)
	wantInterfaces(t, ix, longID("x"), "old")
	testkit.Must(t, os.Remove(filepath.Join(dir, fileOf("x", "old"))))
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	writeFile(t, dir, "a", "")
	most := 1 << 14 // default limit of events that the kernel queues
	if text, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events"); err == nil {
		_, err = fmt.Sscan(string(text), &most)
		testkit.Must(t, err)
	}
	for range most / 2 { // four events each
		testkit.Must(t, os.Rename(a, b))
		testkit.Must(t, os.Rename(b, a))
	}
	writeFile(t, dir, fileOf("x", "new"), pciText)
	wantInterfaces(t, ix, longID("x"), "new")
	if ix.reloads != 2 {
		t.Errorf("%d listings, want two, the second because events were lost", ix.reloads)
	}
	writeFile(t, dir, fileOf("x", "newer"), pciText)
	wantInterfaces(t, ix, longID("x"), "new", "newer")
	if ix.reloads != 2 {
		t.Errorf("%d listings: the watch failed", ix.reloads)
	}
}

// Without a watch, lookups still find every file.
func TestIndexWithoutWatch(t *testing.T) {
	ix, _, dir := newIndexNode(t)
	testkit.Must(t, ix.queue.Close()) // watches fail
	writeFile(t, dir, fileOf("x", "a"), pciText)
	wantInterfaces(t, ix, longID("x"), "a")
	writeFile(t, dir, fileOf("x", "b"), pciText)
	wantInterfaces(t, ix, longID("x"), "a", "b")
	ix.queue = watch.Queue{}
	wantInterfaces(t, ix, longID("x"), "a", "b")
	if ix.names == nil || len(ix.names[longID("x")]) != 2 {
		t.Error("no watch after inotify is usable again")
	}
}

func TestIndexIsBounded(t *testing.T) {
	ix, _, dir := newIndexNode(t)
	ix.maxNames = 10
	for i := range 30 {
		writeFile(t, dir, fileOf(fmt.Sprint(i), "a"), pciText)
	}
	for i := range 30 {
		wantInterfaces(t, ix, longID(fmt.Sprint(i)), "a")
	}
	writeFile(t, dir, fileOf("7", "b"), pciText)
	wantInterfaces(t, ix, longID("7"), "a", "b")
	if len(ix.names) > 10 || ix.names != nil {
		t.Errorf("%d names in memory, watched %v", len(ix.names), ix.names)
	}
	for i := range 30 {
		if i != 7 {
			testkit.Must(t, os.Remove(filepath.Join(dir, fileOf(fmt.Sprint(i), "a"))))
		}
	}
	wantInterfaces(t, ix, longID("7"), "a", "b")
	if ix.names == nil || len(ix.names[longID("7")]) != 2 {
		t.Errorf("%d names in memory, watched %v; want 2 that fit", len(ix.names), ix.names)
	}
}

// Names and IDs may contain the separators. The index must find the same files as a listing.
func TestIndexFindsSameFilesAsListing(t *testing.T) {
	ix, root, dir := newIndexNode(t)
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
	long := strings.NewReplacer("a", sandbox)
	pci := []byte(pciText)
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
			testkit.Must(t, os.RemoveAll(filepath.Join(dir, present[i])))
			present = append(present[:i], present[i+1:]...)
		} else if os.WriteFile(filepath.Join(dir, name), pci, 0o644) == nil {
			present = append(present, name)
		}
		if r.IntN(500) == 0 {
			testkit.Must(t, os.RemoveAll(dir))
			testkit.Must(t, os.Mkdir(dir, 0o755))
			present = nil
		}
		id := word(5)
		if r.IntN(2) == 0 {
			id = long.Replace(id)
		}
		want, err := deviceinfo.CNIDir{Root: root}.ReadSandbox(id)
		testkit.Must(t, err)
		got, err := ix.lookup(id)
		testkit.Must(t, err)
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
	ix, _, dir := newIndexNode(t)
	pci := []byte(pciText)
	tmp := filepath.Join(dir, "tmp")
	for i := range 1500 {
		testkit.Must(t, os.WriteFile(tmp, pci, 0o644))
		id := fmt.Sprintf("%064x", i)
		testkit.Must(t, os.Rename(tmp, filepath.Join(dir, "ns-nad-"+id+"_net1")))
		wantInterfaces(t, ix, id, "net1")
	}
	if ix.reloads != 1 {
		t.Errorf("%d listings, want one", ix.reloads)
	}
}

func TestIndexIsUsedConcurrently(t *testing.T) {
	ix, root, dir := newIndexNode(t)
	store := deviceinfo.CNIDir{Root: root}
	pci, err := deviceinfo.Parse([]byte(pciText), "f")
	testkit.Must(t, err)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 40 {
				id := fmt.Sprintf("%d-%d", w, i)
				name := "n-" + id + "_net1"
				if err := store.Write(name, pci); err != nil {
					t.Error(err)
					return
				}
				// The directory is replaced meanwhile, so the file may be in a former one.
				if es, err := ix.lookup(id); err != nil || len(es) > 0 && es[0].Err != nil {
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
	ix, _, dir := newIndexNode(t)
	writeFile(t, dir, fileOf("x", "a"), pciText)
	wantInterfaces(t, ix, longID("x"), "a")
	testkit.Must(t, ix.Close())
	testkit.Must(t, ix.Close())
	if _, err := ix.lookup("x"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("lookup after Close: %v", err)
	}
}

// Stale files of other sandboxes do not make a lookup do more work: it allocates the same with and
// without them, and examines the names of its own sandbox alone.
func TestStaleFilesDoNotSlowIndex(t *testing.T) {
	count := func(stale int) float64 {
		ix, _, dir := newIndexNode(t)
		writeFile(t, dir, "ns-nad-"+sandbox+"_net1", pciText)
		writeFile(t, dir, "ns-nad-"+sandbox+"_net2", pciText)
		for i := range stale {
			writeFile(t, dir, fmt.Sprintf("ns-nad-%064x_net1", i), pciText)
		}
		allocations := testing.AllocsPerRun(20, func() {
			if es, err := ix.lookup(sandbox); err != nil || len(es) != 2 {
				t.Fatal(es, err)
			}
		})
		if examined := len(ix.names[sandbox]); examined != 2 {
			t.Errorf("a lookup examines %d names, want 2", examined)
		}
		return allocations
	}
	if lean, full := count(0), count(10000); full > 1.2*lean {
		t.Errorf("a lookup allocates %v times with 10000 stale files, %v times without", full, lean)
	}
}

// entryTexts returns the result of a lookup with the texts of its errors.
func entryTexts(entries []deviceinfo.Entry, err error) []string {
	texts := []string{fmt.Sprint(err)}
	for _, e := range entries {
		texts = append(texts, fmt.Sprintf("%s %s %s %+v %v", e.File, e.Network, e.IfName, e.Info != nil, e.Err))
	}
	return texts
}

// The errors of a lookup are those of a listing: for a directory that is missing or a file, for files that are not
// device-info, for too many files, and for invalid IDs.
func TestIndexHasErrorsOfListing(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"missing directory": os.Remove,
		"missing parent":    func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
		"file in place of the directory": func(dir string) error {
			return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o644))
		},
		"hostile files": func(dir string) error {
			at := func(ifName string) string { return filepath.Join(dir, "ns-nad-"+sandbox+"_"+ifName) }
			return errors.Join(os.WriteFile(at("good"), []byte(pciText), 0o644), os.WriteFile(at("bad"), []byte("{"), 0o644),
				unix.Mkfifo(at("fifo"), 0o644), os.Mkdir(at("dir"), 0o755), os.Symlink(at("good"), at("link")),
				os.WriteFile(at("large"), make([]byte, deviceinfo.MaxSize+1), 0o644))
		},
		"too many files": func(dir string) (err error) {
			for i := range 1026 {
				err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprintf("ns-nad-%s_n%d", sandbox, i)), []byte(pciText), 0o644))
			}
			return err
		},
	} {
		ix, root, dir := newIndexNode(t)
		testkit.Must(t, spoil(dir))
		for _, id := range []string{sandbox, longID("none"), "none", "", "a/b", "a\x00b", strings.Repeat("a", 256)} {
			want, wantErr := deviceinfo.CNIDir{Root: root}.ReadSandbox(id)
			got, err := ix.lookup(id)
			if diff := cmp.Diff(entryTexts(want, wantErr), entryTexts(got, err)); diff != "" {
				t.Errorf("%s, sandbox %q -listing +index:\n%s", name, id, diff)
			}
			if name == "hostile files" && id == sandbox && len(got) != 6 {
				t.Errorf("%d entries of 6 files", len(got))
			}
		}
	}
	for _, dir := range []string{"relative", "/a\x00b"} {
		if _, err := newInfoIndex(hostfs.Host(), dir); !errdefs.IsInvalidArgument(err) {
			t.Errorf("directory %q: %v; want invalid argument", dir, err)
		}
	}
}
