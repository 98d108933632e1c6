// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
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

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// TestSameDirectories compares the two on generated directories: the devices they
// find, from which file and with which edits, and the files they find fault with.
// Our registry lives on from one round to the next, so that what it holds after
// many changes is compared, and not only what it loads.
func TestSameDirectories(t *testing.T) {
	g := generator{rand.New(rand.NewPCG(3, 9))}
	top := t.TempDir()
	// With so many files the registry keeps what several have once.
	many := top + "/many"
	if err := os.Mkdir(many, 0o755); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if err := os.WriteFile(fmt.Sprintf("%s/%d.json", many, i), []byte(simple(fmt.Sprint("many-", i), fmt.Sprint("device-of-", i))), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dirs := []string{many, top + "/a", top + "/b", top + "/c"}
	r, err := cdiregistry.New(hostfs.Host(), dirs, cdiregistry.Options{})
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
			_, err := Upstream(t.TempDir(), text)
			if g.chance(60) || err != nil && strings.Contains(err.Error(), "panics") { // defect 1
				text = []byte(simple(fmt.Sprint(g.IntN(1000)), g.names()...))
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

func compareDirectories(t *testing.T, s *cdiregistry.Snapshot, cache *upstream.Cache) (conflicts, shadowed int) {
	t.Helper()
	ours, theirs := s.Devices(), cache.ListDevices()
	faults := map[string]bool{}
	usable := map[string]bool{}
	for _, f := range s.Files() {
		for _, conflict := range conflictsOf(f.Err) {
			conflicts++
			if conflict.Shadowed {
				shadowed++
				// The one deliberate difference here: the device of high priority stays.
				usable[conflict.Name] = true
			}
		}
		// Files that only our stricter rules refuse are not generated here often; they
		// are left out of the comparison below by their devices.
		if f.Err != nil {
			faults[f.Path] = true
		}
	}
	// A file that only our stricter rules refuse changes what the others of its
	// directory are in conflict with.
	strict := false
	for _, path := range slices.Sorted(maps.Keys(faults)) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		diags := new(cdiregistry.Validator).Validate(text)
		if _, theirs := Upstream(t.TempDir(), text); theirs != nil || len(diags) == 0 && len(cache.GetErrors()[path]) > 0 {
			continue
		}
		strict = true
		if why, ok := Allowed(text, diags, nil); !ok || len(diags) == 0 {
			t.Errorf("only jackfield refuses %s: %s", path, why)
		}
	}
	if strict {
		return conflicts, shadowed
	}
	for path := range cache.GetErrors() {
		if !faults[path] {
			t.Errorf("upstream finds fault with %s: %v", path, cache.GetErrors()[path])
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

// conflictsOf are the conflicts in the error of a file, one or several joined.
func conflictsOf(err error) []*cdiregistry.ConflictError {
	var out []*cdiregistry.ConflictError
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range list.Unwrap() {
			out = append(out, conflictsOf(e)...)
		}
		return out
	}
	var c *cdiregistry.ConflictError
	if errors.As(err, &c) {
		out = append(out, c)
	}
	return out
}

func compareDevice(t *testing.T, s *cdiregistry.Snapshot, cache *upstream.Cache, name string) {
	t.Helper()
	d, err := s.Device(name)
	if err != nil {
		t.Fatal(err)
	}
	u := cache.GetDevice(name)
	if u == nil {
		return // told above
	}
	us := u.GetSpec()
	if d.File != us.GetPath() || d.Priority != us.GetPriority() {
		t.Errorf("%s is from %s (%d), upstream's from %s (%d)", name, d.File, d.Priority, us.GetPath(), us.GetPriority())
		return
	}
	whole := func(spec, device specs.ContainerEdits) *specs.Spec {
		return &specs.Spec{ContainerEdits: spec, Devices: []specs.Device{{ContainerEdits: device}}}
	}
	if err := Same(whole(*d.SpecEdits, *d.Edits), whole(us.ContainerEdits, u.ContainerEdits)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}
