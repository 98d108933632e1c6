// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Only temporary files of killed writers are removed, once they are old.
func TestOldTemporaryFilesAreRemoved(t *testing.T) {
	top := t.TempDir()
	host, err := hostfs.New(top)
	testkit.Must(t, err)
	a := &Attachment{Root: host, InfoDir: "/devinfo"}
	testkit.Must(t, (&removal{Attachment: a}).removeTemporary()) // no directory exists
	dir := filepath.Join(top, "devinfo")
	testkit.Must(t, os.Mkdir(dir, 0o755))
	for name, age := range map[string]time.Duration{
		".jackfield-a.tmp": 2 * temporaryAge, ".jackfield-b.tmp": 0, ".jackfield.lock": 2 * temporaryAge, "ns-nad-x_net1": 2 * temporaryAge,
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		old := time.Now().Add(-age)
		testkit.Must(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	testkit.Must(t, (&removal{Attachment: a}).removeTemporary())
	names, err := host.ReadDir(a.InfoDir, maxInfoNames)
	testkit.Must(t, err)
	if diff := cmp.Diff([]string{".jackfield-b.tmp", ".jackfield.lock", "ns-nad-x_net1"}, names); diff != "" {
		t.Error(diff)
	}
}
