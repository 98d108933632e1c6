// SPDX-License-Identifier: Apache-2.0

package cdiregistry

import (
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// TestWordsGiveTheSame: what is read with words in use is what is read without.
func TestWordsGiveTheSame(t *testing.T) {
	good, err := filepath.Glob("testdata/good/*")
	if err != nil || len(good) == 0 {
		t.Fatal(err, good)
	}
	dir := t.TempDir()
	for i := range manyFiles {
		for _, file := range good {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			// In some the kind is another's, in all others the names clash.
			if err := os.WriteFile(fmt.Sprintf("%s/%d-%s", dir, i, filepath.Base(file)), text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(opts Options) (*Registry, *Snapshot) {
		opts.Extensions = []string{".json", ".yaml", ".yml"}
		r, err := New(hostfs.Host(), []string{dir}, opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return r, r.Snapshot()
	}
	with, snapshot := read(Options{})
	_, plain := read(Options{DisableWatch: true})
	if with.dirs[0].words.table.Load() == nil || plain.dirs[0].dir.words.table.Load() != nil {
		t.Fatal("words are not in use, or in a registry that is not kept")
	}
	got, want, smaller := snapshot.Files(), plain.Files(), 0
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) })); diff != "" {
		t.Error(diff)
	}
	for e := range plain.entries(&plain.dirs[0].files) {
		other := snapshot.file(0, e.key())
		if e.err != nil {
			t.Fatal(e.err)
		}
		a, b := e.blob(), other.blob()
		if diff := cmp.Diff(a.spec(), b.spec()); diff != "" {
			t.Errorf("%s (-without +with):\n%s", e.path(), diff)
		}
		for i := range a.n {
			var x, y Device
			a.fill(i, &x)
			b.fill(i, &y)
			if diff := cmp.Diff(x, y); diff != "" {
				t.Errorf("%s, device %d (-without +with):\n%s", e.path(), i, diff)
			}
		}
		if len(b.s) < len(a.s) {
			smaller++
		}
		if !a.same(b) {
			t.Errorf("%s counts as another with words", e.path())
		}
	}
	if smaller < len(want)/2 {
		t.Errorf("%d of %d files are smaller with words", smaller, len(want))
	}
}

// TestWordsAreOfSeveralFiles: a file that is written again and again brings no words.
func TestWordsAreOfSeveralFiles(t *testing.T) {
	dir := t.TempDir()
	r, err := New(hostfs.Host(), []string{dir}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range manyFiles {
		placeFile(t, dir, fmt.Sprint(i, ".json"), fmt.Sprint("device-", i))
	}
	r.Snapshot()
	count := func() (n int) {
		table := r.dirs[0].words.table.Load()
		for i := range table.slots {
			if table.slots[i].Load() != nil {
				n++
			}
		}
		return n
	}
	before := count()
	for range 3 {
		placeFile(t, dir, "again.json", "only-in-this-file")
		if _, err := r.Snapshot().Device("v/c=only-in-this-file"); err != nil {
			t.Fatal(err)
		}
	}
	if after := count(); after != before {
		t.Errorf("%d words have come", after-before)
	}
	if _, ok := r.dirs[0].words.table.Load().number("only-in-this-file", 1); !ok {
		t.Error("what two files have is no word")
	}
}

// TestWordTable: many at once agree on the numbers; there is an end to the words, and
// those that there are stay.
func TestWordTable(t *testing.T) {
	table := &wordTable{seed: maphash.MakeSeed()}
	w := &words{}
	w.table.Store(table)
	const files, strs = 8, 4 << wordBits
	numbers := make([]map[string]uint64, files)
	var work sync.WaitGroup
	for file := range numbers {
		numbers[file] = map[string]uint64{}
		work.Go(func() {
			for i := range strs {
				s := fmt.Sprint("string ", i)
				if n, ok := table.number(s, uint32(file+1)); ok {
					numbers[file][s] = n
					if got := w.at(n); got != s {
						t.Errorf("word %d is %q, want %q", n, got, s)
					}
				}
			}
		})
	}
	work.Wait()
	known := map[string]uint64{}
	for _, list := range numbers {
		for s, n := range list {
			if was, ok := known[s]; ok && was != n {
				t.Errorf("%q is %d and %d", s, was, n)
			}
			known[s] = n
			if got := w.at(n); got != s {
				t.Errorf("word %d is %q, want %q", n, got, s)
			}
		}
	}
	if len(known) < 1<<wordBits/2 || len(known) > 1<<wordBits {
		t.Errorf("%d words", len(known))
	}
	for _, s := range []string{"", "abc", strings.Repeat("x", maxWord+1)} {
		for file := range uint32(3) {
			if _, ok := table.number(s, file); ok {
				t.Errorf("a string of %d bytes is a word", len(s))
			}
		}
	}
}
