// SPDX-License-Identifier: Apache-2.0

package testnames

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Find returns the names of all tests and fuzz targets below the directories, for checks of pages that
// name tests.
func Find(t *testing.T, dirs ...string) map[string]bool {
	t.Helper()
	tests := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, top := range dirs {
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." && path != top:
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
				return nil
			}
			data, err := os.ReadFile(path)
			for _, m := range function.FindAllSubmatch(data, -1) {
				tests[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return tests
}
