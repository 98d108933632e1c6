// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"fmt"
	"path"
	"testing"
)

// TestPathsAreComparedAsTheyAreCleaned holds what settles most comparisons at a
// glance to what cleaning both paths says, for all short paths of two names.
func TestPathsAreComparedAsTheyAreCleaned(t *testing.T) {
	paths := []string{""}
	for from, length := 0, 0; length < 5; length++ {
		to := len(paths)
		for _, p := range paths[from:to] {
			for _, c := range "/.ab" {
				paths = append(paths, p+string(c))
			}
		}
		from = to
	}
	for _, p := range paths[:len(paths):len(paths)] {
		if len(p) < 4 {
			paths = append(paths, "/run"+p, "/var/run"+p, p+"/run/a", p+"/var/run/a")
		}
	}
	spelling, place := make([]string, len(paths)), make([]string, len(paths))
	for i, p := range paths {
		spelling[i], place[i] = path.Clean(p), cleanPath(p)
	}
	for i, a := range paths {
		for j, b := range paths {
			if got, want := SameSpelling(a, b), spelling[i] == spelling[j]; got != want {
				t.Fatalf("SameSpelling(%q, %q) = %v", a, b, got)
			}
			if got, want := SamePlace(a, b), place[i] == place[j]; got != want {
				t.Fatalf("SamePlace(%q, %q) = %v", a, b, got)
			}
		}
	}
}

// BenchmarkManyMounts adds mounts whose destinations end alike, and are all compared
// with each other.
func BenchmarkManyMounts(b *testing.B) {
	mounts := make([]Mount, 1000)
	for i := range mounts {
		mounts[i] = Mount{Destination: fmt.Sprintf("/opt/vendor/%d/lib", i), Source: "/s", Origin: Origin{Source: CDI}}
	}
	for b.Loop() {
		set := NewBuilder(&Set{}, Existing{})
		for i := range mounts {
			if err := set.AddMount(&mounts[i]); err != nil {
				b.Fatal(err)
			}
		}
	}
}
