// SPDX-License-Identifier: Apache-2.0

package dpdk

import (
	"debug/elf"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The packages contain every library that testpmd and the drivers need, and each package is needed. No
// library of this machine is used.
func TestTreeHasEveryNeededLibrary(t *testing.T) {
	k := load(t)
	tree := Lay(t)
	provides := map[string]string{} // package by file name
	for _, pkg := range k.Dirs {
		for name, err := range Files(pkg) {
			if err != nil {
				t.Fatal(err)
			}
			provides[filepath.Base(name)] = pkg
		}
	}
	if len(provides) < len(k.Dirs) {
		t.Fatalf("%d packages have %d files", len(k.Dirs), len(provides))
	}
	todo := []string{filepath.Base(program)}
	for _, driver := range []string{"net_vhost", "net_virtio", "net_memif", "mempool_ring", "bus_vdev", "bus_pci"} {
		todo = append(todo, "librte_"+driver+".so.23")
	}
	used := map[string]bool{} // packages
	seen := map[string]bool{} // files
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if seen[name] {
			continue
		}
		seen[name] = true
		pkg, ok := provides[name]
		if !ok {
			t.Errorf("no package has %s", name)
			continue
		}
		used[pkg] = true
		libs, err := needed(tree, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		todo = append(todo, libs...)
	}
	for _, pkg := range k.Dirs {
		if !used[pkg] {
			t.Errorf("nothing needs package %s", filepath.Base(pkg))
		}
	}
	t.Logf("%d packages, %d libraries: %s", len(k.Dirs), len(seen), strings.Join(slices.Sorted(maps.Keys(seen)), " "))
}

// needed returns the libraries that a file of the tree is linked to.
func needed(t *Tree, name string) ([]string, error) {
	for _, pattern := range []string{"usr/bin", "lib/*", "usr/lib/*", "usr/lib/*/dpdk/pmds-*"} {
		found, err := filepath.Glob(filepath.Join(t.Dir, pattern, name))
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			f, err := elf.Open(found[0])
			if err != nil {
				return nil, err
			}
			libs, err := f.ImportedLibraries()
			return libs, errors.Join(err, f.Close())
		}
	}
	return nil, errors.New("not in the tree")
}

func TestForwardStatisticsAreRead(t *testing.T) {
	const log = `
  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 1              RX-dropped: 0             RX-total: 1
  TX-packets: 1              TX-dropped: 0             TX-total: 1
  ----------------------------------------------------------------------------
testpmd> start
  ---------------------- Forward statistics for port 0  ----------------------
  RX-packets: 2959232        RX-dropped: 0             RX-total: 2959232
  TX-packets: 2959264        TX-dropped: 0             TX-total: 2959264
  ----------------------------------------------------------------------------

  ---------------------- Forward statistics for port 12 ----------------------
  RX-packets: 0              RX-dropped: 0             RX-total: 0
  TX-packets: 32             TX-dropped: 0             TX-total: 32
  ----------------------------------------------------------------------------

  +++++++++++++++ Accumulated forward statistics for all ports+++++++++++++++
  RX-packets: 2959232        RX-dropped: 0             RX-total: 2959232
  TX-packets: 2959264        TX-dropped: 0             TX-total: 2959264
`
	got := Forwarded(log)
	if len(got) != 2 || got[0] != (Counters{2959232, 2959264}) || got[12] != (Counters{0, 32}) {
		t.Errorf("got %v", got)
	}
	if got := Forwarded(""); len(got) != 0 {
		t.Errorf("nothing gives %v", got)
	}
}
