// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// Other projects import the package, so its dependencies are few.
func TestLibraryHasFewDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	testkit.Must(t, err)
	allowed := map[string]bool{
		"github.com/jackfield/jackfield/pkg/deviceinfo":         true,
		"github.com/jackfield/jackfield/internal/host/hostfs":   true,
		"github.com/jackfield/jackfield/internal/base/diag":     true,
		"github.com/jackfield/jackfield/internal/base/jsontree": true,
		"github.com/jackfield/jackfield/internal/base/name":     true,
		"github.com/jackfield/jackfield/internal/host/watch":    true,
		"github.com/containerd/errdefs":                         true,
		"golang.org/x/sys/unix":                                 true,
	}
	for _, p := range strings.Fields(string(out)) {
		if !allowed[p] {
			t.Errorf("the package depends on %s", p)
		}
	}
}
