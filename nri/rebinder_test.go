// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

// The OCI hook's state directory cannot be used at first, and is used as soon as possible.
func TestRebinderRetriesHookStateDirectory(t *testing.T) {
	var hookDir string
	h := newRunningHost(t, fmt.Sprintf(runningConfig, runningRule), func(root string) {
		hookDir = filepath.Join(root, "run/jackfield/hook")
		testkit.Must(t, os.MkdirAll(filepath.Dir(hookDir), 0o755))
		testkit.Must(t, os.WriteFile(hookDir, nil, 0o644)) // a file in place of the directory
	})
	const fault = "sockets of containers that the OCI hook serves are not rebound"
	h.waitForStatus("the failure in the log", func(ConfigStatus) bool { return strings.Contains(h.log.String(), fault) })
	testkit.Must(t, os.Remove(hookDir))
	h.waitForStatus("the directory in use", func(ConfigStatus) bool {
		return strings.Contains(h.log.String(), "the OCI hook serves are rebound again")
	})
	if n := strings.Count(h.log.String(), fault); n != 1 {
		t.Errorf("the log has the failure %d times, want once", n)
	}
}
