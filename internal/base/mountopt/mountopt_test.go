// SPDX-License-Identifier: Apache-2.0

package mountopt

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParseTranslatesMountOptions(t *testing.T) {
	const atime = unix.MOUNT_ATTR__ATIME
	for name, tc := range map[string]struct {
		options []string
		want    Options
	}{
		"bind":                    {[]string{"bind", "ro", "nosuid"}, Options{Bind: true, Set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID}},
		"recursive bind":          {[]string{"rbind", "rslave"}, Options{Bind: true, Recursive: true, Propagation: unix.MS_SLAVE}},
		"recursive attributes":    {[]string{"rro", "rnodev"}, Options{SetAll: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV}},
		"last option counts":      {[]string{"ro", "rw", "nodev", "dev"}, Options{Clear: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV}},
		"last propagation":        {[]string{"shared", "rprivate"}, Options{Propagation: unix.MS_PRIVATE}},
		"atime is one field":      {[]string{"noatime", "strictatime"}, Options{Set: unix.MOUNT_ATTR_STRICTATIME, Clear: atime}},
		"relatime":                {[]string{"relatime"}, Options{Clear: atime}},
		"ID map":                  {[]string{"ridmap"}, Options{IDMap: true}},
		"file system":             {[]string{"size=64k", "mode=755", "size=64k"}, Options{Data: []string{"size=64k", "mode=755"}}},
		"defaults":                {[]string{"defaults", "", "norelatime"}, Options{}},
		"remount is no attribute": {[]string{"remount"}, Options{Data: []string{"remount"}}},
		"recursive noatime":       {[]string{"rnoatime"}, Options{SetAll: unix.MOUNT_ATTR_NOATIME, ClearAll: atime}},
	} {
		got := Parse(tc.options)
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s: Parse(%q), -want +got:\n%s", name, tc.options, d)
		}
	}
}

func TestBindMountIsKnownByTypeOrOption(t *testing.T) {
	if !IsBind("bind", nil) || !IsBind("", []string{"rbind"}) || !IsBind("none", []string{"ro", "bind"}) || IsBind("tmpfs", []string{"ro"}) {
		t.Error("a bind mount is one by its type, or by one of its options")
	}
}

// A mount counts as read-only only when every option is known to leave it so.
func TestMountIsReadOnlyOnlyWithKnownOptions(t *testing.T) {
	for _, tc := range []struct {
		options []string
		want    bool
	}{
		{[]string{"rbind", "ro"}, true},
		{[]string{"ro", "nosuid", "rprivate"}, true},
		{[]string{"ro", "rro", "sync", "nostrictatime", "rnosymfollow"}, true},
		{[]string{"rw", "ro"}, true},
		{[]string{"ro", "rw"}, false},
		{[]string{"rbind"}, false},
		{[]string{"rro"}, false},
		{[]string{"rbind", "ro", "rrw"}, false},
		{[]string{"rrw", "rbind", "ro"}, false},
		{[]string{"rrw", "rro", "ro"}, false},
		{[]string{"ro", "idmap"}, false},
		{[]string{"ro", "some-option"}, false},
	} {
		if got := IsReadOnly(tc.options); got != tc.want {
			t.Errorf("IsReadOnly(%q) = %v, want %v", tc.options, got, tc.want)
		}
	}
}
