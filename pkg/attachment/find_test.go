// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// A network's real name, by what there is to tell it.
func TestNetworkName(t *testing.T) {
	for _, tc := range []struct {
		name, text, networks, want, note string
		multus                           map[string]any
		policy                           string // the name for policy, where Multus' record has it; the file's otherwise
	}{
		{name: "Multus' record", text: "a-b-c", multus: net("a-b/c"), networks: "a/b-c", want: "a-b/c", policy: "a-b/c"},
		{name: "Multus' record of another network", text: "ns-x", multus: net("ns/y"), want: "ns/y", note: "Multus attached", policy: "ns/y"},
		{name: "Multus' record of a network that is no NAD", text: "cluster", multus: net("cluster"), want: "cluster", policy: "cluster"},
		{name: "the annotation", text: "a-b-c", networks: "ns/x, a-b/c@net1", want: "a-b/c"},
		{name: "the annotation in JSON", text: "other-net", networks: `[{"name":"net","namespace":"other"}]`, want: "other/net"},
		{name: "the annotation fits twice", text: "a-b-c", networks: "a/b-c,a-b/c", want: "a-b-c", note: "fits"},
		{name: "the annotation names it twice", text: "a-b-c", networks: "a/b-c@x,a/b-c@net1", want: "a/b-c"},
		{name: "the pod's namespace", text: "ns-my-net", want: "ns/my-net"},
		{name: "nothing", text: "other-net", want: "other-net"},
		{name: "an annotation that cannot be read", text: "other-net", networks: `[{"name":`, want: "other-net", note: "annotation"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.put(filepath.Join(deviceinfo.DefaultCNIDir, tc.text+"-"+sandbox+"_net1"), vhostInfo)
			if tc.multus != nil {
				n.multus(tc.multus)
			}
			q := query()
			q.Networks = tc.networks
			as, err := n.finder().Sandbox(t.Context(), q)
			check(t, err)
			a := byIfName(t, as, "net1")
			if a.Network != tc.want || a.Err != nil {
				t.Errorf("the network is %q, want %q: %v", a.Network, tc.want, a.Err)
			}
			if want := cmp.Or(tc.policy, tc.text); a.PolicyNetwork() != want || a.NetworkGuessed != (tc.policy == "") {
				t.Errorf("policy is asked about %q, guessed: %t; want %q", a.PolicyNetwork(), a.NetworkGuessed, want)
			}
			if (tc.note == "") != (len(a.Notes) == 0) || !hasNote(a, tc.note) {
				t.Errorf("notes are %q, want one with %q", a.Notes, tc.note)
			}
		})
	}
}

// A network without device-info is a note, and where the kubelet gave it a device,
// the device plugin's file says which.
func TestMissingDeviceInfo(t *testing.T) {
	for _, tc := range []struct {
		name, networks string
		multus         []map[string]any
		dp             [2]string
		ifName, note   string
		device         string // "" for none
		is             error
	}{
		{name: "one without a device", networks: "ns/bridge", multus: []map[string]any{net("ns/bridge")}, ifName: "net1", note: "brings no device"},
		{name: "one that Multus does not know", networks: "bridge@lan0", ifName: "lan0", note: "no record"},
		{name: "a device ID of the annotation", networks: "ns/net", multus: []map[string]any{net("ns/net", "deviceID", devA)}, ifName: "net1", note: "is not used"},
		{name: "a device of the kubelet's", multus: []map[string]any{vfNet("ns/net", devA)}, dp: [2]string{devA, pciInfo(devA)}, ifName: "net1", note: "no device-info file", device: devA},
		{name: "a device of the kubelet's, with its address for an ID", multus: []map[string]any{vfNet("ns/net", devA)}, ifName: "net1", note: "taken for a PCI address", device: devA},
		{name: "a device that nothing describes", multus: []map[string]any{vfNet("ns/net", "port-7")}, ifName: "net1", note: "nor of device"},
		{name: "a broken file of the device plugin", multus: []map[string]any{vfNet("ns/net", devA)}, dp: [2]string{devA, "nonsense"}, ifName: "net1", is: errdefs.ErrInvalidArgument},
		{name: "an interface that was asked for", multus: []map[string]any{net("ns/net", "ifnameRequest", "fast0", "deviceID", devA, "resourceName", vf)}, ifName: "fast0", device: devA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.gives("c1: intel.com/vf=" + devA)
			if tc.multus != nil {
				n.multus(tc.multus...)
			}
			if tc.dp[0] != "" {
				n.dp(vf, tc.dp[0], tc.dp[1])
			}
			q := query()
			q.Networks = tc.networks
			if tc.networks == "" {
				n.cni("ns/other", "net9", vhostInfo)
			}
			as, spare, err := n.finder().Find(t.Context(), q)
			check(t, err)
			a := byIfName(t, as, tc.ifName)
			switch {
			case tc.is != nil:
				if !errdefs.IsInvalidArgument(a.Err) {
					t.Errorf("the error is %v", a.Err)
				}
			case a.Err != nil:
				t.Error(a.Err)
			case tc.device == "" && (a.Info != nil || a.Owner != OwnerUnknown):
				t.Errorf("found %+v of %s", a.Info, a.Owner)
			case tc.device != "" && (a.Info == nil || a.Info.PCI.PCIAddress != tc.device || a.Owner != OwnedHere):
				t.Errorf("found %+v of %s", a.Info, a.Owner)
			}
			if tc.note != "" && !hasNote(a, tc.note) {
				t.Errorf("no note with %q in %q", tc.note, a.Notes)
			}
			if tc.device != "" && len(spare) > 0 {
				t.Errorf("and the device is allocated without a network: %+v", spare)
			}
		})
	}
}

// The resource of a socket is Multus' to tell: dialects go by it.
func TestResourceOfASocket(t *testing.T) {
	n := newNode(t)
	n.multus(net("ns/sock", "deviceID", "s1", "resourceName", "example.com/vhost-net"))
	n.cni("ns/sock", "net1", vhostInfo)
	as, err := n.finder().Sandbox(t.Context(), query())
	if a := one(t, as, err); a.Resource != "example.com/vhost-net" || a.DeviceID != "s1" || a.Owner != OwnerUnknown || a.Err != nil {
		t.Errorf("found %+v", a)
	}
}

func TestOrder(t *testing.T) {
	n := newNode(t)
	n.cni("ns/c", "net2", vhostInfo)
	n.cni("ns/a", "net10", vhostInfo)
	n.cni("ns/b", "net1", vhostInfo)
	as, err := n.finder().Sandbox(t.Context(), query())
	check(t, err)
	if len(as) != 3 || as[0].IfName != "net1" || as[1].IfName != "net10" || as[2].IfName != "net2" {
		t.Errorf("the order is %+v", as)
	}
}

// Without an index the answers are the same.
func TestOnce(t *testing.T) {
	n := newNode(t)
	n.opts.Once = true
	n.gives("c1: intel.com/vf=" + devA)
	n.cni("ns/net", "net1", pciInfo(devA))
	as, err := n.finder().Sandbox(t.Context(), query())
	if a := one(t, as, err); a.Owner != OwnedHere {
		t.Errorf("found %+v", a)
	}
}

func TestNothingToFind(t *testing.T) {
	n := newNode(t)
	k := n.gives("c1: intel.com/vf=" + devA)
	f := n.finder()
	for _, q := range []Query{query(), {}, {SandboxID: sandbox}} {
		as, spare, err := f.Find(t.Context(), q)
		if as != nil || spare != nil || err != nil {
			t.Errorf("%+v: found %v, %v, %v", q, as, spare, err)
		}
	}
	if k.times() != 0 {
		t.Errorf("the kubelet was asked %d times", k.times())
	}
}

func TestDirectoryErrors(t *testing.T) {
	n := newNode(t)
	check(t, os.RemoveAll(n.path(deviceinfo.DefaultCNIDir)))
	n.put(deviceinfo.DefaultCNIDir, "a file")
	if _, err := n.finder().Sandbox(t.Context(), query()); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a file for a directory gave %v", err)
	}
	for _, opts := range []Options{{CNIDir: "x"}, {DPDir: "x"}, {MultusDir: "x"}, {PodResourcesSocket: "x"}} {
		if _, err := New(n.root, opts); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%+v gave %v", opts, err)
		}
	}
}
