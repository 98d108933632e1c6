// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// readSources returns the test files of a directory below testdata.
func readSources(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/%s has no files: %v", dir, err)
	}
	all := map[string][]byte{}
	for _, f := range files {
		if filepath.Ext(f) == ".golden" {
			continue
		}
		data, err := os.ReadFile(f)
		testkit.Must(t, err)
		all[f] = data
	}
	return all
}

// compareGolden compares got with the golden file of a source.
func compareGolden(t *testing.T, file, got string) {
	t.Helper()
	file += ".golden"
	if *update {
		testkit.Must(t, os.WriteFile(file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	testkit.Must(t, err)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update accepts it):\n%s", file, diff)
	}
}

// formatLines returns one diagnostic per line.
func formatLines(ds FieldErrors) string {
	var b strings.Builder
	for i := range ds {
		b.WriteString(ds[i].Error() + "\n")
	}
	return b.String()
}

func TestGoldenGood(t *testing.T) {
	for file, data := range readSources(t, "good") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			info, err := Parse(data, filepath.Base(file))
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			out, err := Marshal(info)
			testkit.Must(t, err)
			compareGolden(t, file, formatLines(info.Warnings)+string(out))

			again, err := Parse(out, filepath.Base(file))
			testkit.Must(t, err)
			info.Warnings, again.Warnings = nil, nil // their positions differ
			if diff := cmp.Diff(info, again); diff != "" {
				t.Errorf("after Marshal and Parse (-before +after):\n%s", diff)
			}
		})
	}
}

func TestGoldenBad(t *testing.T) {
	for file, data := range readSources(t, "bad") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			info, err := Parse(data, filepath.Base(file))
			if err == nil {
				t.Fatalf("accepted as %+v", info)
			}
			compareGolden(t, file, formatLines(diagnosticsOf(t, err)))
		})
	}
}

// diagnosticsOf returns the diagnostics in err, which must be sorted, complete and of one
// line each.
func diagnosticsOf(t testing.TB, err error) FieldErrors {
	t.Helper()
	var ds FieldErrors
	if !errors.As(err, &ds) || len(ds) == 0 {
		t.Fatalf("%T %v is not a FieldErrors", err, err)
	}
	var one *FieldError
	if !errdefs.IsInvalidArgument(err) || !errors.As(err, &one) {
		t.Errorf("%v is not an invalid argument, or not a *FieldError", err)
	}
	for i, d := range ds {
		if strings.ContainsFunc(d.Error(), func(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }) {
			t.Errorf("a control character in %q", d.Error())
		}
		if len([]rune(d.Error())) > 1000 {
			t.Errorf("a message of %d characters", len([]rune(d.Error())))
		}
		if d.Rule == "" {
			t.Errorf("a diagnostic without a rule: %+v", d)
		}
		if i > 0 && d.Line > 0 && (d.Line < ds[i-1].Line || d.Line == ds[i-1].Line && d.Column < ds[i-1].Column) {
			t.Errorf("diagnostics are not sorted: %v after %v", ds[i], ds[i-1])
		}
	}
	return ds
}

func TestGoldenNetworkStatus(t *testing.T) {
	for file, data := range readSources(t, "status") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			list, err := ParseNetworkStatus(data, filepath.Base(file))
			if err == nil {
				t.Fatalf("accepted as %+v", list)
			}
			compareGolden(t, file, formatLines(diagnosticsOf(t, err)))
		})
	}
}
