// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackfield/jackfield/internal/config"
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
		check(t, err)
		store, err := record.Open(host, record.DefaultDir)
		check(t, err)
		defer store.Close()
		for id, adapter := range map[string]string{"lives": "", "gone": "", "podman": "netavark"} {
			key := record.Key{Network: "fast", ContainerID: id, Interface: "net1"}
			check(t, store.Create(&record.Record{Key: key, Adapter: adapter, Netns: "/run/netns/gone", InfoDir: deviceinfo.DefaultCNIDir,
				InfoFile: "default-fast-" + id + "_net1", Info: &deviceinfo.Info{Type: deviceinfo.TypeVhostUser, Version: deviceinfo.Version,
					VhostUser: &deviceinfo.VhostUser{Mode: "server", Path: "/x"}}}))
			old := time.Now().Add(-time.Hour)
			check(t, os.Chtimes(host.Path(path.Join(record.DefaultDir, key.FileName())), old, old))
		}
		d := &doctor{Options: Options{Host: host, Fix: true}, cfg: config.Default()}
		found := d.checkAttachments(tc.listed, time.Now().Add(-time.Minute))
		keys, err := store.Keys()
		check(t, err)
		var left []string
		for _, key := range keys {
			left = append(left, key.ContainerID)
		}
		if found != 3-len(tc.left) || !slices.Equal(left, tc.left) {
			t.Errorf("listed %q: found %d, left %q; want %q", tc.listed, found, left, tc.left)
		}
		if f := d.findings[0]; !f.Fixed || !strings.Contains(f.Found, "of removed sandboxes") {
			t.Errorf("listed %q: %+v", tc.listed, f)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
