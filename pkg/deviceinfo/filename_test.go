// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"os"
	"path"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/base/testkit"
)

const testID = "e061661af3732d3722604b84a196956ad759f02ae00cda41a639ff6aff85a276"

func TestDPFileName(t *testing.T) {
	for _, c := range []struct{ resource, id, want string }{
		{"intel.com/sriov", "0000:03:02.1", "intel.com-sriov-0000:03:02.1-device.json"},
		{"a/b/c", "x/y", "a-b-c-x-y-device.json"},
		{"r", "..", "r-..-device.json"},
	} {
		if got, err := dpFileName(c.resource, c.id); err != nil || got != c.want {
			t.Errorf("dpFileName(%q, %q) = %q, %v; want %q", c.resource, c.id, got, err, c.want)
		}
	}
	for _, c := range [][2]string{{"", "x"}, {"x", ""}, {"../x", "y"}, {"a\x00", "y"}, {"a", "b\x00"}, {strings.Repeat("a", 250), "x"}} {
		if got, err := dpFileName(c[0], c[1]); !errdefs.IsInvalidArgument(err) {
			t.Errorf("dpFileName(%q) = %q, %v; want invalid argument", c, got, err)
		}
	}
}

func TestCNIFileName(t *testing.T) {
	// A name from a node with Multus.
	data, err := os.ReadFile("testdata/cni-file-name.txt")
	testkit.Must(t, err)
	full := strings.TrimSpace(string(data))
	if path.Dir(full) != DefaultCNIDir {
		t.Errorf("%q is not in %q", full, DefaultCNIDir)
	}
	got, err := CNIFileName("admin", "srv", testID, "net1")
	if err != nil || got != path.Base(full) {
		t.Errorf("CNIFileName = %q, %v; want %q", got, err, path.Base(full))
	}
	network, ifName, ok := name.MatchInfoFile(path.Base(full), testID)
	if network != "admin-srv" || ifName != "net1" || !ok {
		t.Errorf("MatchInfoFile = %q, %q, %v", network, ifName, ok)
	}
	if got, err := CNIFileName("a/b", "c/d", "id", "net1"); err != nil || got != "a-b-c-d-id_net1" {
		t.Errorf("slashes: %q, %v", got, err)
	}
	for _, c := range [][4]string{
		{"", "n", "id", "net1"}, {"ns", "", "id", "net1"}, {"ns", "n", "", "net1"}, {"ns", "n", "id", ""},
		{"ns", "n", "../id", "net1"}, {"ns", "n", "i\x00d", "net1"}, {"ns", "n", "id", "a/b"}, {"ns", "n", "id", ".."}, {"ns", "n", "id", "a b"},
		{"ns", "n", "id", "a:b"}, {"ns", "n", "id", strings.Repeat("i", 16)}, {"..", "n", "id", "net1"}, {".ns", "n", "id", "net1"},
		{"n\x00s", "n", "id", "net1"}, {"ns", strings.Repeat("n", 250), "id", "net1"},
		{"ns", "n-id_x", "id", "net1"}, // would be parsed as network ns-n, interface x-id_net1
	} {
		if got, err := CNIFileName(c[0], c[1], c[2], c[3]); !errdefs.IsInvalidArgument(err) {
			t.Errorf("CNIFileName(%q) = %q, %v; want invalid argument", c, got, err)
		}
	}
}
