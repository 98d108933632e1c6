// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	rspec "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/jackfield/jackfield/test/ocivalid"
)

// runtime-tools accepts the golden files of pkg/apply/oci.
func TestGoldenConfigsAreValid(t *testing.T) {
	dir := filepath.Join("..", "..", "pkg", "apply", "oci", "testdata")
	read := func(file string) *rspec.Spec {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var spec rspec.Spec
		if err := json.Unmarshal(text, &spec); err != nil {
			t.Fatal(err)
		}
		return &spec
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.golden"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		ocivalid.Check(t, read(filepath.Join(dir, "base.json")), read(file))
	}
}
