// SPDX-License-Identifier: Apache-2.0

package hostfs

import (
	"reflect"
	"slices"
	"testing"
)

func TestMountinfoIsRead(t *testing.T) {
	got := ParseMounts("30 25 0:26 / / rw,relatime shared:1 - ext4 /dev/root rw\n" +
		"31 30 0:27 /b /mnt/with\\040space rw master:2 shared:3 - cgroup cgroup rw,devices\n" +
		"32 30 0:28 / /a\\134b rw master:4 - cgroup2 cgroup2 rw\n" +
		"broken\n33 30 0:29 / /short rw - tmpfs\n34 30 - x y z\n")
	want := []Mount{
		{Root: "/", Point: "/", Shared: true, FSType: "ext4", Super: []string{"rw"}},
		{Root: "/b", Point: "/mnt/with space", Shared: true, FSType: "cgroup", Super: []string{"rw", "devices"}},
		{Root: "/", Point: `/a\b`, FSType: "cgroup2", Super: []string{"rw"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	own, err := Mounts()
	if err != nil || !slices.ContainsFunc(own, func(m Mount) bool { return m.Point == "/" }) {
		t.Errorf("no mount at / in the mounts of this process: %v, %v", own, err)
	}
}

func FuzzParseMounts(f *testing.F) {
	f.Add("0 1000 1\n1 100000 65536\n")
	f.Add("30 25 0:26 / /a\\040b rw shared:1 - cgroup cgroup rw,devices\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, m := range ParseMounts(text) {
			if m.Root == "" || m.Point == "" || m.FSType == "" {
				t.Errorf("mount %+v of %q", m, text)
			}
		}
		// The text as a uid_map: without a user namespace the root is unknown, and a root is a valid ID.
		if root, inside := rootOutside([]byte(text)); !inside && root != -1 || root < -1 || root > 1<<32-1 {
			t.Errorf("root %d, in a user namespace %v, from %q", root, inside, text)
		}
	})
}

// A file system can be mounted from an empty source, which mountinfo shows as nothing.
func TestParseMountsWithoutSource(t *testing.T) {
	got := ParseMounts("36 30 0:30 / /run/vsw rw,relatime shared:7 - tmpfs  rw,size=64k\n")
	want := []Mount{{Root: "/", Point: "/run/vsw", Shared: true, FSType: "tmpfs", Super: []string{"rw", "size=64k"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}
