// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestWriteRemedySparesSharedDirectories(t *testing.T) {
	const shared = "choose a directory that only root can write to"
	for _, tc := range []struct {
		file string
		mode uint32
		want string
	}{
		{"/etc/cdi", unix.S_IFDIR | 0o777, "run `chmod go-w /etc/cdi`"},
		{"/etc/cdi/a.json", unix.S_IFREG | 0o666, "run `chmod go-w /etc/cdi/a.json`"},
		{"/srv/pool", unix.S_IFDIR | unix.S_ISVTX | 0o777, shared},
		{"/tmp", unix.S_IFDIR | 0o777, shared},
		{"/tmp/", unix.S_IFDIR | 0o777, shared},
		{"/var/run", unix.S_IFDIR | 0o775, shared},
		{"/tmp", unix.S_IFREG | 0o666, "run `chmod go-w /tmp`"},
	} {
		if got := WriteRemedy(tc.file, tc.mode); got != tc.want {
			t.Errorf("%s with mode %o: %q, want %q", tc.file, tc.mode, got, tc.want)
		}
	}
}
