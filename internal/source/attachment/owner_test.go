// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/source/kubelet"
)

const (
	devA = "0000:03:00.2"
	devB = "0000:03:00.3"
	devC = "0000:03:01.0"
)

// The owner of a network's device, from each source.
func TestOwnerOfDeviceComesFromEachSource(t *testing.T) {
	const env = "PCIDEVICE_INTEL_COM_VF="
	for _, tc := range []struct {
		name     string
		info     string // of net1; "" is a PCI function devA
		dp       [2]string
		kubelet  []string // nil: no socket
		hangs    bool
		env      []string
		required bool
		want     Attachment // the owner and the fields that depend on it
		conflict []string   // names in the error, where there is a conflict
		is       error
		note     string
	}{
		{name: "the kubelet allocated it to this container", kubelet: []string{"c1: intel.com/vf=" + devB + "," + devA, "c2: "},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Device: devA, Resource: vf}},
		{name: "the kubelet and the environment agree", kubelet: []string{"c1: intel.com/vf=" + devA}, env: []string{env + devA},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Device: devA, Resource: vf}},
		{name: "an address in capitals", info: pciInfo("0000:0A:00.2"), kubelet: []string{"c1: intel.com/vf=0000:0a:00.2"}, env: []string{env + "0000:0A:00.2"},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: "0000:0a:00.2", Device: "0000:0a:00.2", Resource: vf}},
		{name: "the kubelet allocated it to another container", kubelet: []string{"c1: intel.com/vf=" + devB, "c2: intel.com/vf=" + devA},
			want: Attachment{Owner: OwnedElsewhere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Resource: vf}, note: `container "c2"`},
		{name: "the environment names another container's device", kubelet: []string{"c1: ", "c2: intel.com/vf=" + devA}, env: []string{env + devA},
			conflict: []string{"PCIDEVICE_INTEL_COM_VF", socket, `"c2"`, devA}},
		{name: "the kubelet allocated it to no container", kubelet: []string{"c1: ", "c2: "}, want: Attachment{Owner: OwnerUnknown}, note: "no container of the pod"},
		{name: "the environment names a device of no container", kubelet: []string{"c1: ", "c2: "}, env: []string{"PCIDEVICE_X=" + devA},
			conflict: []string{"PCIDEVICE_X", socket, "no container of the pod"}},
		{name: "the kubelet allocated it to two containers", kubelet: []string{"c1: intel.com/vf=" + devA, "c2: intel.com/vf=" + devA},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Device: devA, Resource: vf}, note: `also allocated the device to container "c2"`},
		{name: "an init container is not in the kubelet's list", kubelet: []string{"c2: intel.com/vf=" + devA}, env: []string{env + devA},
			want: Attachment{Owner: OwnedElsewhere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Resource: vf}, note: "init container"},
		{name: "an init container with a device that is not allocated", kubelet: []string{"c2: "}, env: []string{env + devA},
			want: Attachment{Owner: OwnerUnknown}, note: "init container"},
		{name: "a device of a resource claim", kubelet: []string{"c1: claim:vfs=0000-03-00-2", "c2: claim:vfs=0000-03-00-3"},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: "0000-03-00-2", Device: devA}, note: `"ns/vfs"`},
		{name: "another container's claim", kubelet: []string{"c1: ", "c2: claim:vfs=0000-03-00-2"},
			want: Attachment{Owner: OwnedElsewhere, OwnerFrom: FromKubelet(socket), DeviceID: "0000-03-00-2"}},

		{name: "an ID whose device is in the plugin's file", dp: [2]string{"port-7", pciInfo(devA)}, kubelet: []string{"c1: intel.com/vf=port-7"},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: "port-7", Device: devA, Resource: vf}},
		{name: "an ID without a description", kubelet: []string{"c1: intel.com/vf=port-7"}, want: Attachment{Owner: OwnerUnknown}},
		{name: "an ID whose file describes another device", dp: [2]string{"port-7", pciInfo(devB)}, kubelet: []string{"c1: intel.com/vf=port-7"},
			want: Attachment{Owner: OwnerUnknown}},

		{name: "vDPA by its name", info: vdpaInfo("vdpa0", ""), kubelet: []string{"c1: intel.com/vf=vdpa0"},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: "vdpa0", Device: "vdpa0", Resource: vf}},
		{name: "vDPA by the function below it", info: vdpaInfo("vdpa0", devA), kubelet: []string{"c1: intel.com/vf=" + devA},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Device: devA, Resource: vf}},
		{name: "vDPA also in the device plugin's file", info: vdpaInfo("vdpa0", devA), dp: [2]string{devA, vdpaInfo("vdpa0", devA)}, kubelet: []string{"c1: intel.com/vf=" + devA},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Device: devA, Resource: vf}},
		{name: "another vDPA device of the same function", info: vdpaInfo("vdpa1", devA), dp: [2]string{devA, vdpaInfo("vdpa0", devA)}, kubelet: []string{"c1: intel.com/vf=" + devA},
			conflict: []string{"vdpa1", "vdpa0", "_net1", "-device.json"}},
		{name: "vDPA devices that share a function, by name", info: vdpaInfo("vdpa1", devA), dp: [2]string{"sf.1", vdpaInfo("vdpa1", devA)},
			kubelet: []string{"c1: intel.com/pf=" + devA, "c2: intel.com/vf=sf.1"},
			want:    Attachment{Owner: OwnedElsewhere, OwnerFrom: FromKubelet(socket), DeviceID: "sf.1", Resource: vf}},
		{name: "a socket has no owner", info: vhostInfo, kubelet: []string{"c1: "}, want: Attachment{Owner: OwnerUnknown}},

		{name: "no socket: the environment is trusted", env: []string{env + devB + "," + devA},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromEnvironment("PCIDEVICE_INTEL_COM_VF"), DeviceID: devA, Device: devA}, note: "pod's author can set it too"},
		{name: "no socket, and the plugin's file has the resource's name", dp: [2]string{devA, pciInfo(devA)}, env: []string{env + devA},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromEnvironment("PCIDEVICE_INTEL_COM_VF"), DeviceID: devA, Device: devA, Resource: vf}},
		{name: "no socket, and an ID whose device is in the plugin's file", dp: [2]string{"port-7", pciInfo(devA)}, env: []string{env + "port-7"},
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromEnvironment("PCIDEVICE_INTEL_COM_VF"), DeviceID: "port-7", Device: devA, Resource: vf}},
		{name: "no socket, and the environment does not name it", env: []string{env + devB}, want: Attachment{Owner: OwnerUnknown}, note: "no variable"},
		{name: "no socket, but the kubelet is required", env: []string{env + devA}, required: true, is: errdefs.ErrUnavailable},
		{name: "required and there", kubelet: []string{"c1: intel.com/vf=" + devA}, required: true,
			want: Attachment{Owner: OwnedHere, OwnerFrom: FromKubelet(socket), DeviceID: devA, Device: devA, Resource: vf}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			if tc.info == "" {
				tc.info = pciInfo(devA)
			}
			n.writeCNIFile("ns/net", "net1", tc.info)
			if tc.dp[0] != "" {
				n.writeDPFile(vf, tc.dp[0], tc.dp[1])
			}
			if tc.kubelet != nil {
				n.allocate(tc.kubelet...)
			}
			n.opts.KubeletRequired = tc.required
			as, err := n.newFinder().findNetworks(t.Context(), newQuery(tc.env...))
			a := wantOneAttachment(t, as, err)
			switch {
			case tc.conflict != nil:
				wantConflict(t, a.Err, tc.conflict...)
			case tc.is != nil:
				if !errors.Is(a.Err, tc.is) {
					t.Errorf("the error is %v, want %v", a.Err, tc.is)
				}
			case a.Err != nil:
				t.Fatal(a.Err)
			default:
				got := Attachment{Owner: a.Owner, OwnerFrom: a.OwnerFrom, DeviceID: a.DeviceID, Device: a.Device, Resource: a.Resource}
				if d := cmp.Diff(tc.want, got); d != "" {
					t.Error(d)
				}
			}
			if a.Err != nil && (a.Owner != OwnerUnknown || a.Info != nil) {
				t.Errorf("an attachment with an error has owner %q and info %v", a.Owner, a.Info)
			}
			if tc.note != "" && !hasNote(a, tc.note) {
				t.Errorf("no note with %q in %q", tc.note, a.Notes)
			}
		})
	}
}

// If the kubelet is present but fails, the environment is not used instead.
func TestFailingKubeletIsNotReplacedByEnvironment(t *testing.T) {
	for name, k := range map[string]*fakeKubelet{
		"unavailable":      {err: fmt.Errorf("refused: %w", errdefs.ErrUnavailable)},
		"malformed answer": {err: fmt.Errorf("malformed: %w", errdefs.ErrInvalidArgument)},
		"hangs":            {hangs: true},
		"unknown pod":      {err: fmt.Errorf("no such pod: %w", errdefs.ErrNotFound)},
		"pod listed twice": {err: fmt.Errorf("twice: %w", errdefs.ErrConflict)},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.useKubelet(k)
			n.writeCNIFile("ns/net", "net1", pciInfo(devA))
			n.writeCNIFile("ns/sock", "net2", vhostInfo)
			as, err := n.newFinder().findNetworks(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA))
			testkit.Must(t, err)
			if a := findByIfName(t, as, "net1"); a.Err == nil || a.Owner != OwnerUnknown {
				t.Errorf("owner %s by %q, error expected", a.Owner, a.OwnerFrom)
			}
			if a := findByIfName(t, as, "net2"); a.Err != nil || a.Info == nil {
				t.Errorf("the socket is affected: %v", a.Err)
			}
		})
	}
}

// The kubelet is not called for sockets and unwanted devices.
func TestKubeletIsQueriedOnlyWhenNeeded(t *testing.T) {
	n := newNode(t)
	k := n.allocate("c1: intel.com/vf=" + devA)
	n.writeCNIFile("ns/sock", "net2", vhostInfo)
	f := n.newFinder()
	for range 3 {
		if _, _, err := f.Search(t.Context(), newQuery()).Find(); err != nil {
			t.Fatal(err)
		}
	}
	if k.countCalls() != 0 {
		t.Errorf("%d calls for a socket", k.countCalls())
	}
	n.writeCNIFile("ns/net", "net1", pciInfo(devA))
	q := newQuery("PCIDEVICE_INTEL_COM_VF=" + devA)
	q.Wanted = func(*Attachment) bool { return false }
	as, spare, err := f.Search(t.Context(), q).Find()
	testkit.Must(t, err)
	if a := findByIfName(t, as, "net1"); k.countCalls() != 0 || a.Owner != OwnerUnknown || a.Err != nil || len(spare) != 0 {
		t.Errorf("%d calls for an unwanted device: %+v, %+v", k.countCalls(), a, spare)
	}
	q.Wanted = func(a *Attachment) bool { return a.Network == "ns/net" || a.Network == "" }
	if _, _, err = f.Search(t.Context(), q).Find(); err != nil || k.countCalls() != 1 {
		t.Errorf("%d calls for one query, want 1: %v", k.countCalls(), err)
	}
}

// Multus may assign the devices of two containers to the networks in another order than the kubelet.
func TestDevicesInAnotherOrderThanContainers(t *testing.T) {
	n := newNode(t)
	n.writeMultusRecord(vfNetworkEntry("ns/east", devA), vfNetworkEntry("ns/west", devB), vfNetworkEntry("other/mgmt", devC))
	n.writeCNIFile("ns/east", "net1", pciInfo(devA))
	n.writeCNIFile("ns/west", "net2", pciInfo(devB))
	n.writeCNIFile("other/mgmt", "net3", pciInfo(devC))
	n.allocate("c1: intel.com/vf="+devB, "c2: intel.com/vf="+devA+","+devC)
	f := n.newFinder()
	for container, want := range map[string]string{
		"c1": "net1 ns/east another container, net2 ns/west this container, net3 other/mgmt another container, ",
		"c2": "net1 ns/east this container, net2 ns/west another container, net3 other/mgmt this container, ",
	} {
		q := newQuery()
		q.Container = container
		as, spare, err := f.Search(t.Context(), q).Find()
		testkit.Must(t, err)
		got := ""
		for _, a := range as {
			got += fmt.Sprintf("%s %s %s, ", a.IfName, a.Network, a.Owner)
			if a.Err != nil || a.Resource != vf {
				t.Errorf("%s: %v", a.IfName, a)
			}
		}
		if got != want || len(spare) != 0 {
			t.Errorf("container %s: %s, and %v; want %s", container, got, spare, want)
		}
	}
}

var _ Kubelet = kubelet.QueryPod
