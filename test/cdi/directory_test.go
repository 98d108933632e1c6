// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	upstream "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// TestRandomDirectoriesAgreeWithUpstream compares both sides on generated directories: the devices, their files and
// edits, and the files with errors. The registry is the same in all rounds, so the test also checks
// its state after many changes.
func TestRandomDirectoriesAgreeWithUpstream(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(3, 9))}
	top := t.TempDir()
	// With so many files the registry stores equal values once.
	many := top + "/many"
	if err := os.Mkdir(many, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d.json", many, i), []byte(specWithEnv(fmt.Sprint("many-", i), fmt.Sprint("device-of-", i))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{many, top + "/a", top + "/b", top + "/c"}
	r, err := cdi.NewCache(cdi.Options{SpecDirs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	conflicts, shadowed := 0, 0
	for round := range *rounds / 20 {
		g.change(t, dirs[1:])
		cache, err := upstream.NewCache(upstream.WithSpecDirs(dirs...), upstream.WithAutoRefresh(false))
		if err != nil {
			t.Fatal(err)
		}
		s := r.Snapshot()
		c, sh := compareDirectories(t, s, cache)
		conflicts, shadowed = conflicts+c, shadowed+sh
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("%d conflicts, %d of them shadowed", conflicts, shadowed)
	if conflicts == 0 || shadowed == 0 {
		t.Error("no conflicts were generated")
	}
}

// change alters the directories a little.
func (g generator) change(t *testing.T, dirs []string) {
	t.Helper()
	for range 1 + g.IntN(4) {
		dir := pick(g, dirs...)
		file := filepath.Join(dir, pick(g, "a.json", "b.yaml", "c.json", "d.json", "ignored.txt"))
		switch g.IntN(10) {
		case 0:
			_ = os.RemoveAll(dir)
		case 1, 2:
			_ = os.Remove(file)
		default:
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			text := g.text()
			_, err := parseUpstream(t.TempDir(), text)
			if g.chance(60) || err != nil && strings.Contains(err.Error(), "panics") { // defect 1
				text = []byte(specWithEnv(fmt.Sprint(g.IntN(1000)), g.names()...))
			}
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (g generator) names() []string {
	names := []string{"x", "y", "z", "w"}
	g.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return names[:1+g.IntN(3)]
}

func compareDirectories(t *testing.T, s *cdi.Snapshot, cache *upstream.Cache) (conflicts, shadowed int) {
	t.Helper()
	ours, theirs := s.Devices(), cache.ListDevices()
	faults := map[string]bool{}
	usable := map[string]bool{}
	for _, f := range s.Files() {
		for _, conflict := range f.Conflicts {
			conflicts++
			if conflict.Shadowed {
				shadowed++
				// This difference is intended: the device of high priority remains usable.
				usable[conflict.Name] = true
			}
		}
		// Few of the generated files are rejected by Jackfield's stricter rules only. Their devices
		// are left out of the comparison below.
		if f.Err != nil {
			faults[f.Path] = true
		}
	}
	// A file that only Jackfield rejects changes the conflicts of other files in its directory.
	strict := false
	for _, path := range slices.Sorted(maps.Keys(faults)) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		_, diags := parseText(text)
		if _, theirs := parseUpstream(t.TempDir(), text); theirs != nil || len(diags) == 0 && len(cache.GetErrors()[path]) > 0 {
			continue
		}
		strict = true
		if why, ok := isIntended(text, diags, nil); !ok || len(diags) == 0 {
			t.Errorf("only jackfield rejects %s: %s", path, why)
		}
	}
	if strict {
		return conflicts, shadowed
	}
	for path := range cache.GetErrors() {
		if !faults[path] {
			t.Errorf("only upstream rejects %s: %v", path, cache.GetErrors()[path])
		}
	}
	ours = slices.DeleteFunc(ours, func(name string) bool { return usable[name] && !slices.Contains(theirs, name) })
	if diff := cmp.Diff(theirs, ours); diff != "" && len(theirs)+len(ours) > 0 {
		t.Errorf("devices (-upstream +jackfield):\n%s\nfaults %v", diff, slices.Sorted(maps.Keys(faults)))
	}
	for _, name := range ours {
		compareDevice(t, s, cache, name)
	}
	return conflicts, shadowed
}

func compareDevice(t *testing.T, s *cdi.Snapshot, cache *upstream.Cache, name string) {
	t.Helper()
	d, err := s.Device(name)
	if err != nil {
		t.Fatal(err)
	}
	u := cache.GetDevice(name)
	if u == nil {
		return // reported above
	}
	us := u.GetSpec()
	if d.File != us.GetPath() || d.Priority != us.GetPriority() {
		t.Errorf("%s is from %s (%d), and upstream's from %s (%d)", name, d.File, d.Priority, us.GetPath(), us.GetPriority())
		return
	}
	whole := func(spec, device specs.ContainerEdits) *specs.Spec {
		return &specs.Spec{ContainerEdits: spec, Devices: []specs.Device{{ContainerEdits: device}}}
	}
	if err := compareSpecs(whole(*d.SpecEdits, *d.Edits), whole(us.ContainerEdits, u.ContainerEdits)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
