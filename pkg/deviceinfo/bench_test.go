// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackfield/jackfield/pkg/busytest"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// staleNode has the two files of one sandbox, beside stale ones of others.
func staleNode(t testing.TB, stale int) hostfs.Root {
	t.Helper()
	root, dir := testNode(t)
	put(t, dir, "ns-nad-"+testID+"_net1", info("vhost-user", vhostMap))
	put(t, dir, "ns-nad-"+testID+"_net2", info("pci", pciMap))
	first := filepath.Join(dir, fmt.Sprintf("ns-nad-%064x_net1", 0))
	for i := range stale {
		if i == 0 {
			put(t, dir, filepath.Base(first), info("pci", pciMap))
			continue
		}
		must(t, os.Link(first, filepath.Join(dir, fmt.Sprintf("ns-nad-%064x_net1", i))))
	}
	return root
}

func BenchmarkIndexLookup(b *testing.B) {
	for _, stale := range []int{0, 10000} {
		b.Run(fmt.Sprintf("stale=%d", stale), func(b *testing.B) {
			ix := testIndex(b, staleNode(b, stale), IndexOptions{})
			has(b, ix, testID, "net1", "net2")
			b.ReportAllocs()
			for b.Loop() {
				if es, err := ix.Lookup(testID); err != nil || len(es) != 2 {
					b.Fatal(es, err)
				}
			}
		})
	}
}

// A pod without fast-path networks, which is most of them.
func BenchmarkIndexLookupNothing(b *testing.B) {
	for _, stale := range []int{0, 10000} {
		b.Run(fmt.Sprintf("stale=%d", stale), func(b *testing.B) {
			ix := testIndex(b, staleNode(b, stale), IndexOptions{})
			b.ReportAllocs()
			for b.Loop() {
				if es, err := ix.Lookup("none"); err != nil || es != nil {
					b.Fatal(es, err)
				}
			}
		})
	}
}

func BenchmarkReadSandbox(b *testing.B) {
	for _, stale := range []int{0, 10000} {
		b.Run(fmt.Sprintf("stale=%d", stale), func(b *testing.B) {
			root := staleNode(b, stale)
			for b.Loop() {
				if es, err := ReadSandbox(root, "", testID); err != nil || len(es) != 2 {
					b.Fatal(es, err)
				}
			}
		})
	}
}

func BenchmarkIndexFirstLookup(b *testing.B) {
	root := staleNode(b, 10000)
	for b.Loop() {
		ix, err := NewIndex(root, "", IndexOptions{})
		must(b, err)
		if es, err := ix.Lookup(testID); err != nil || len(es) != 2 {
			b.Fatal(es, err)
		}
		b.StopTimer()
		must(b, ix.Close())
		b.StartTimer()
	}
}

func BenchmarkParse(b *testing.B) {
	data := []byte(info("vdpa", vdpaMap+`,"pci-address":"0000:65:00.3","pf-pci-address":"0000:65:00.0"`))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data, "f"); err != nil {
			b.Fatal(err)
		}
	}
}

// Stale files of other sandboxes do not make a lookup dearer. The quickest of
// many rounds is compared, in processor time and in turn, so that a busy machine does
// not decide.
func TestLookupCostsTheSameWithStaleFiles(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures time: not with -short or -race")
	}
	lean := testIndex(t, staleNode(t, 0), IndexOptions{})
	full := testIndex(t, staleNode(t, 10000), IndexOptions{})
	cost := func(ix *Index) time.Duration {
		start := busytest.CPU()
		for range 100 {
			if es, err := ix.Lookup(testID); err != nil || len(es) != 2 {
				t.Fatal(es, err)
			}
		}
		return (busytest.CPU() - start) / 100
	}
	cost(lean)
	cost(full)
	const most = 1.2
	var ratio float64
	for range 5 {
		var ls, fs []time.Duration
		for range 40 {
			ls, fs = append(ls, cost(lean)), append(fs, cost(full))
		}
		l, f := slices.Min(ls), slices.Min(fs)
		if ratio = float64(f) / float64(l); ratio <= most {
			t.Logf("%v with 0 stale files, %v with 10000: %.2f times", l, f, ratio)
			return
		}
	}
	t.Errorf("a lookup costs %.2f times as much with 10000 stale files, want at most %.1f", ratio, most)
}
