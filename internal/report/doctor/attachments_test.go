// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/port/record"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// doctor reports the attachments of removed sandboxes and removes them with Fix. Without a runtime's list, only those of
// Podman are known.
func TestAttachmentsOfRemovedSandboxes(t *testing.T) {
	for _, tc := range []struct {
		listed, left []string
	}{
		{[]string{"lives"}, []string{"lives"}},
		{nil, []string{"gone", "lives"}},
	} {
		host, err := hostfs.New(t.TempDir())
		testkit.Must(t, err)
		store, err := record.Open(host, record.DefaultDir)
		testkit.Must(t, err)
		defer store.Close()
		for id, adapter := range map[string]string{"lives": "", "gone": "", "podman": "netavark"} {
			key := record.Key{Network: "fast", ContainerID: id, Interface: "net1"}
			testkit.Must(t, store.Create(&record.Record{Key: key, Adapter: adapter, Netns: "/run/netns/gone", InfoDir: deviceinfo.DefaultCNIDir,
				InfoFile: "default-fast-" + id + "_net1", Info: &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version,
					VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: "/x"}}}))
			old := time.Now().Add(-time.Hour)
			testkit.Must(t, os.Chtimes(host.Path(path.Join(record.DefaultDir, key.FileName())), old, old))
		}
		n := newNode(Options{Host: host})
		found := checkAttachments(n, tc.listed, time.Now().Add(-time.Minute))
		found.fix(t.Context())
		keys, err := store.Keys()
		testkit.Must(t, err)
		var left []string
		for _, key := range keys {
			left = append(left, key.ContainerID)
		}
		if !slices.Equal(left, tc.left) {
			t.Errorf("listed %q: left %q; want %q", tc.listed, left, tc.left)
		}
		count := diag.Count(3-len(tc.left), "attachment") + " of removed sandboxes"
		if len(found) != 1 || !found[0].Fixed || !strings.HasPrefix(found[0].Found, count) {
			t.Errorf("listed %q: %+v, want %s", tc.listed, found, count)
		}
	}
}
