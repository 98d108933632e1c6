// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

const sample = `package p

// Sample tells what it is.
// Two lines.
type sample struct{}

/* whatever
   what */
func (s *sample) one() error { return fmt.Errorf("found %s: want "+"b", "a") }
func (s sample) two() error  { return errors.New("must be what") } // trailing
func (g generic[T]) three()  { _ = fmt.Sprintf("want") }
func four() error            { return errdefs.ErrNotFound.WithMessage("wanted") }
`

func TestFiguresOfSample(t *testing.T) {
	f := &figures{methods: map[string]int{}}
	long := "\n// " + strings.Repeat("é", 117) + "\n// " + strings.Repeat("é", 118) + "\n"
	if err := f.add("dir/sample.go", []byte(sample+long)); err != nil {
		t.Fatal(err)
	}
	rows := f.rows()
	var got []int
	for _, row := range rows {
		got = append(got, row.count)
	}
	if expected := []int{1, 15, 1, 7, 2, 1, 2}; !slices.Equal(got, expected) {
		t.Errorf("figures %v, want %v", got, expected)
	}
	if f.errors != 3 || f.methods["dir.sample"] != 2 || f.methods["dir.generic"] != 1 {
		t.Errorf("%d errors and methods %v", f.errors, f.methods)
	}
	bad := report(io.Discard, rows)
	if expected := []string{"lines over 120 columns", `comment lines with "what"`, `error messages with "want"`}; !slices.Equal(bad, expected) {
		t.Errorf("beyond limits: %q, want %q", bad, expected)
	}
	if bad := report(io.Discard, []figure{{name: "a", count: 1, of: 100, limit: 2, isLeast: true}}); len(bad) != 1 {
		t.Error("too few comment lines are within the limit")
	}
}
