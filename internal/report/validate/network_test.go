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
func TestDroppedKeysAreThoseOfPaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"00-path.conf":     `{"type": "multus", "clusterNetwork": "/etc/cni/net.d/10-fast.conflist"}`,
		"01-list.conflist": `{"plugins": [{"type": "multus-shim", "clusterNetwork": "/etc/cni/net.d/10-fast.conflist"}]}`,
		"02-name.conflist": `{"plugins": [{"type": "multus", "clusterNetwork": "fast"}]}`,
		"03-other.conf":    `{"type": "bridge", "clusterNetwork": "/a"}`,
		"04-broken.conf":   `{`,
	} {
		testkit.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	host, err := hostfs.New(dir)
	testkit.Must(t, err)
	if got := DroppedKeys(host, "/"); !slices.Equal(got, []string{"/00-path.conf", "/01-list.conflist"}) {
		t.Errorf("found %q", got)
	}
	if got := DroppedKeys(host, "/missing"); got != nil {
		t.Errorf("found %q in a missing directory", got)
	}
}
