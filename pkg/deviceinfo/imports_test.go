// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"os/exec"
	"strings"
	"testing"
)

// The package is for others to import: it must bring nothing along but these.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	must(t, err)
	allowed := map[string]bool{
		"github.com/jackfield/jackfield/pkg/deviceinfo": true,
		"github.com/jackfield/jackfield/pkg/hostfs":     true,
		"github.com/jackfield/jackfield/pkg/wording":    true, // which brings the standard library alone
		"github.com/containerd/errdefs":                 true,
		"golang.org/x/sys/unix":                         true,
	}
	for _, p := range strings.Fields(string(out)) {
		if !allowed[p] {
			t.Errorf("the package brings in %s", p)
		}
	}
}
