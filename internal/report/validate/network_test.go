// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Multus drops keys only where clusterNetwork is a path, in a configuration and in a list, with the plugin and the shim.
// A name in the daemon's configuration takes precedence over the shim's path.
func TestDroppedKeysAreThoseOfPaths(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		testkit.Must(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for name, text := range map[string]string{
		"00-path.conf":     `{"type": "multus", "clusterNetwork": "/etc/cni/net.d/10-fast.conflist"}`,
		"01-list.conflist": `{"plugins": [{"type": "multus-shim", "clusterNetwork": "/etc/cni/net.d/10-fast.conflist"}]}`,
		"02-name.conflist": `{"plugins": [{"type": "multus", "clusterNetwork": "fast"}]}`,
		"03-other.conf":    `{"type": "bridge", "clusterNetwork": "/a"}`,
		"04-broken.conf":   `{`,
	} {
		write(name, text)
	}
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	const volume = "/pods/0a1b/volumes/kubernetes.io~configmap/multus-daemon-config/"
	both, thin := []string{"/00-path.conf", "/01-list.conflist"}, []string{"/00-path.conf"}
	for _, c := range []struct {
		daemon string // daemon-config.json; "" for none
		want   []string
	}{
		{"", both},
		{`{"socketDir": "/host/run/multus/"}`, both},
		{`{"clusterNetwork": "/host/etc/cni/net.d/10-fast.conflist"}`, both},
		{`{`, both},
		{`{"clusterNetwork": "fast", "confDir": "/host/etc/cni/net.d"}`, thin},
	} {
		if c.daemon != "" {
			write(volume+"..data/daemon-config.json", c.daemon)
			link := filepath.Join(dir, volume, "daemon-config.json")
			if err := os.Symlink("..data/daemon-config.json", link); err != nil && !os.IsExist(err) {
				t.Fatal(err)
			}
		}
		if got := DroppedKeys(host, "/", "/pods"); !slices.Equal(got, c.want) {
			t.Errorf("with the daemon's configuration %q: found %q, want %q", c.daemon, got, c.want)
		}
	}
	if got := DroppedKeys(host, "/missing", "/pods"); got != nil {
		t.Errorf("found %q in a missing directory", got)
	}
}
