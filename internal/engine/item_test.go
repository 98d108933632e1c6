// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

// An item has the kind and name of its request in separate fields. Its reason has no text of a Go sentinel.
func TestItemsHaveKindAndName(t *testing.T) {
	h := newHost(t, "enforce")
	h.listen("/run/vsw/1/s")
	h.writeInfo("one", "net1", vhostUserInfo("client", "/var/run/vsw/1/s"))
	r := newRequest(`[{device: "vendor.com/net=a"}, {device: "vendor.com/net=none", optional: true}, {device: "resource:example.com/r/id", optional: true}]`)
	p := h.resolve(r)
	want := []Item{
		{Kind: KindCDI, Name: "vendor.com/net=a"}, {Kind: KindCDI, Name: "vendor.com/net=none"},
		{Kind: KindResource, Name: "example.com/r", Device: "id"}, {Kind: KindNetwork, Name: "ns/one", Interface: "net1"},
	}
	if len(p.Items) != len(want) {
		t.Fatalf("got %+v", p.Items)
	}
	for i, it := range p.Items {
		if w := want[i]; it.Kind != w.Kind || it.Name != w.Name || it.Interface != w.Interface || it.Device != w.Device {
			t.Errorf("%s is %+v, want %+v", it.Request, it, w)
		}
		if (it.Err == nil) != (it.Outcome == Injected) || (it.Reason == "") != (it.Err == nil) || strings.Contains(it.Reason, errdefs.ErrNotFound.Error()) {
			t.Errorf("%s: outcome %s, reason %q", it.Request, it.Outcome, it.Reason)
		}
	}
	var fault *RequestError
	if err := p.Items[1].Err; !errors.As(err, &fault) || fault.Annotation != "devices.jackfield.dev" || fault.Position != 2 || !errdefs.IsNotFound(err) {
		t.Errorf("the error of the second item is %#v", err)
	}
}
