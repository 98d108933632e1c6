// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// The name of a network comes from the best source that is available.
func TestNetworkNameComesFromBestSource(t *testing.T) {
	for _, tc := range []struct {
		name, text, networks, want, note string
		multus                           map[string]any
		policy                           string // the network for policy from Multus' record; if empty, the name in the file name
	}{
		{name: "Multus' record", text: "a-b-c", multus: networkEntry("a-b/c"), networks: "a/b-c", want: "a-b/c", policy: "a-b/c"},
		{name: "Multus' record of another network", text: "ns-x", multus: networkEntry("ns/y"), want: "ns/y", note: "Multus attached", policy: "ns/y"},
		{name: "Multus' record of a network that is no NAD", text: "cluster", multus: networkEntry("cluster"), want: "cluster", policy: "cluster"},
		{name: "the annotation", text: "a-b-c", networks: "ns/x, a-b/c@net1", want: "a-b/c"},
		{name: "the annotation in JSON", text: "other-net", networks: `[{"name":"net","namespace":"other"}]`, want: "other/net"},
		{name: "two networks of the annotation match", text: "a-b-c", networks: "a/b-c,a-b/c", want: "a-b-c", note: "matches"},
		{name: "the annotation names it twice", text: "a-b-c", networks: "a/b-c@x,a/b-c@net1", want: "a/b-c"},
		{name: "the pod's namespace", text: "ns-my-net", want: "ns/my-net"},
		{name: "no source", text: "other-net", want: "other-net"},
		{name: "an annotation that cannot be read", text: "other-net", networks: `[{"name":`, want: "other-net", note: "annotation"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.write(filepath.Join(deviceinfo.DefaultCNIDir, tc.text+"-"+sandbox+"_net1"), vhostInfo)
			if tc.multus != nil {
				n.writeMultusRecord(tc.multus)
			}
			q := newQuery()
			q.Networks = tc.networks
			as, err := n.newFinder().findNetworks(t.Context(), q)
			testkit.Must(t, err)
			a := findByIfName(t, as, "net1")
			if a.Network != tc.want || a.Err != nil {
				t.Errorf("network %q, want %q: %v", a.Network, tc.want, a.Err)
			}
			if want := cmp.Or(tc.policy, tc.text); a.PolicyNetwork() != want || a.NetworkGuessed != (tc.policy == "") {
				t.Errorf("network for policy %q, guessed %t; want %q", a.PolicyNetwork(), a.NetworkGuessed, want)
			}
			if (tc.note == "") != (len(a.Notes) == 0) || !hasNote(a, tc.note) {
				t.Errorf("notes %q, want one with %q", a.Notes, tc.note)
			}
		})
	}
}

// A network without device-info has a note. If the kubelet allocated a device for it, the
// device plugin's file describes the device.
func TestNetworkWithoutDeviceInfoHasNote(t *testing.T) {
	for _, tc := range []struct {
		name, networks string
		multus         []map[string]any
		dp             [2]string
		ifName, note   string
		device         string // "" for none
		err            error
	}{
		{name: "network without a device", networks: "ns/bridge", multus: []map[string]any{networkEntry("ns/bridge")}, ifName: "net1", note: "it has no device"},
		{name: "network without a record", networks: "bridge@lan0", ifName: "lan0", note: "no record"},
		{name: "device ID from the annotation", networks: "ns/net", multus: []map[string]any{networkEntry("ns/net", "deviceID", devA)}, ifName: "net1", note: "is ignored"},
		{name: "an allocated device", multus: []map[string]any{vfNetworkEntry("ns/net", devA)}, dp: [2]string{devA, pciInfo(devA)}, ifName: "net1", note: "no device-info file", device: devA},
		{name: "an allocated device whose ID is its address", multus: []map[string]any{vfNetworkEntry("ns/net", devA)}, ifName: "net1", note: "its ID is a PCI address", device: devA},
		{name: "device without a description", multus: []map[string]any{vfNetworkEntry("ns/net", "port-7")}, ifName: "net1", note: "neither the network nor its device"},
		{name: "a broken file of the device plugin", multus: []map[string]any{vfNetworkEntry("ns/net", devA)}, dp: [2]string{devA, "nonsense"}, ifName: "net1", err: errdefs.ErrInvalidArgument},
		{name: "requested interface name", multus: []map[string]any{networkEntry("ns/net", "ifnameRequest", "fast0", "deviceID", devA, "resourceName", vf)}, ifName: "fast0", device: devA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.allocate("c1: intel.com/vf=" + devA)
			if tc.multus != nil {
				n.writeMultusRecord(tc.multus...)
			}
			if tc.dp[0] != "" {
				n.writeDPFile(vf, tc.dp[0], tc.dp[1])
			}
			q := newQuery()
			q.Networks = tc.networks
			if tc.networks == "" {
				n.writeCNIFile("ns/other", "net9", vhostInfo)
			}
			as, spare, err := n.newFinder().Search(t.Context(), q).Find()
			testkit.Must(t, err)
			a := findByIfName(t, as, tc.ifName)
			switch {
			case tc.err != nil:
				if !errdefs.IsInvalidArgument(a.Err) {
					t.Errorf("got error %v, want an invalid argument", a.Err)
				}
			case a.Err != nil:
				t.Error(a.Err)
			case tc.device == "" && (a.Info != nil || a.Owner != OwnerUnknown):
				t.Errorf("device-info %+v, owner %s", a.Info, a.Owner)
			case tc.device != "" && (a.Info == nil || a.Info.PCI.PCIAddress != tc.device || a.Owner != OwnedHere):
				t.Errorf("device-info %+v, owner %s", a.Info, a.Owner)
			}
			if tc.note != "" && !hasNote(a, tc.note) {
				t.Errorf("no note with %q in %q", tc.note, a.Notes)
			}
			if tc.device != "" && len(spare) > 0 {
				t.Errorf("the device is also reported without a network: %+v", spare)
			}
		})
	}
}

// The resource of a socket comes from Multus' record. Dialects are selected by it.
func TestSocketHasResourceOfMultusRecord(t *testing.T) {
	n := newNode(t)
	n.writeMultusRecord(networkEntry("ns/sock", "deviceID", "s1", "resourceName", "example.com/vhost-net"))
	n.writeCNIFile("ns/sock", "net1", vhostInfo)
	as, err := n.newFinder().findNetworks(t.Context(), newQuery())
	if a := wantOneAttachment(t, as, err); a.Resource != "example.com/vhost-net" || a.DeviceID != "s1" || a.Owner != OwnerUnknown || a.Err != nil {
		t.Errorf("got %+v", a)
	}
}

func TestAttachmentsAreSortedByInterface(t *testing.T) {
	n := newNode(t)
	n.writeCNIFile("ns/c", "net2", vhostInfo)
	n.writeCNIFile("ns/a", "net10", vhostInfo)
	n.writeCNIFile("ns/b", "net1", vhostInfo)
	as, err := n.newFinder().findNetworks(t.Context(), newQuery())
	testkit.Must(t, err)
	if len(as) != 3 || as[0].IfName != "net1" || as[1].IfName != "net10" || as[2].IfName != "net2" {
		t.Errorf("got order %+v", as)
	}
}

// Without an index the results are the same.
func TestFinderWithoutIndex(t *testing.T) {
	n := newNode(t)
	n.opts.Once = true
	n.allocate("c1: intel.com/vf=" + devA)
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	as, err := n.newFinder().findNetworks(t.Context(), newQuery())
	if a := wantOneAttachment(t, as, err); a.Owner != OwnedHere {
		t.Errorf("got %+v", a)
	}
}

func TestQueryWithoutNetworksAndDevices(t *testing.T) {
	n := newNode(t)
	k := n.allocate("c1: intel.com/vf=" + devA)
	f := n.newFinder()
	for _, q := range []Query{newQuery(), {}, {SandboxID: sandbox}} {
		as, spare, err := f.Search(t.Context(), q).Find()
		if as != nil || spare != nil || err != nil {
			t.Errorf("query %+v: %v, %v, %v", q, as, spare, err)
		}
	}
	if k.countCalls() != 0 {
		t.Errorf("the kubelet was called %d times", k.countCalls())
	}
}

func TestFindReportsUnusableDirectory(t *testing.T) {
	n := newNode(t)
	testkit.Must(t, os.RemoveAll(n.path(deviceinfo.DefaultCNIDir)))
	n.write(deviceinfo.DefaultCNIDir, "a file")
	if _, err := n.newFinder().findNetworks(t.Context(), newQuery()); !errdefs.IsInvalidArgument(err) {
		t.Errorf("file in place of a directory: %v", err)
	}
	if _, err := New(n.root, Options{CNIDir: "x"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("relative CNIDir: %v", err)
	}
}
