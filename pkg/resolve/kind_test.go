// SPDX-License-Identifier: Apache-2.0

package resolve

import "testing"

// Each item says what its request is for, also where an author chose its name.
func TestItemsHaveTheirKind(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/1/s")
	h.info("one", "net1", vhost("client", "/var/run/vsw/1/s"))
	r := ask(`[{device: "vendor.com/net=a"}, {device: "vendor.com/net=none", optional: true}, {device: "resource:example.com/r", optional: true}]`)
	p := h.resolve(r)
	want := []RequestKind{KindCDI, KindCDI, KindResource, KindNetwork}
	if len(p.Items) != len(want) {
		t.Fatalf("found %+v", p.Items)
	}
	for i, it := range p.Items {
		if it.Kind != want[i] {
			t.Errorf("%s is of kind %q, want %q", it.Request, it.Kind, want[i])
		}
	}
}

// A mount counts as read-only only when every option is known to leave it so.
func TestReadOnlyMounts(t *testing.T) {
	for _, tc := range []struct {
		options []string
		want    bool
	}{
		{[]string{"rbind", "ro"}, true},
		{[]string{"ro", "nosuid", "rprivate"}, true},
		{[]string{"rw", "ro"}, true},
		{[]string{"ro", "rw"}, false},
		{[]string{"rbind"}, false},
		{[]string{"rbind", "ro", "rrw"}, false},
		{[]string{"rrw", "rbind", "ro"}, false},
		{[]string{"ro", "some-option"}, false},
	} {
		if got := ReadOnly(tc.options); got != tc.want {
			t.Errorf("%q is read-only: %v, want %v", tc.options, got, tc.want)
		}
	}
}
