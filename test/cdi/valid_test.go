// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackfield/jackfield/test/ocivalid"
)

// runtime-tools accepts the golden files of internal/edit/oci.
func TestGoldenConfigsAreValid(t *testing.T) {
	dir := filepath.Join("..", "..", "internal", "edit", "oci", "testdata")
	read := func(file string) []byte {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.golden"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		ocivalid.CheckText(t, read(filepath.Join(dir, "base.json")), read(file))
	}
}
