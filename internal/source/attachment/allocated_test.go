// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// Find also returns devices that are allocated to the container and belong to no network.
func TestAllocatedDevicesWithoutNetworkAreFound(t *testing.T) {
	const env = "PCIDEVICE_INTEL_COM_VF="
	for _, tc := range []struct {
		name    string
		setup   func(n *node)
		kubelet []string
		env     []string
		want    string // "resource/id=device owner" each
		note    string
	}{
		{name: "two pools", kubelet: []string{"c1: intel.com/vf=" + devB + " intel.com/fpga=" + devA, "c2: intel.com/vf=" + devC},
			env: []string{env + devB, "PCIDEVICE_INTEL_COM_FPGA=" + devA}, setup: func(n *node) { n.writeDPFile(vf, devB, pciInfo(devB)) },
			want: "intel.com/fpga/" + devA + "=" + devA + " intel.com/vf/" + devB + "=" + devB, note: "its ID is a PCI address"},
		{name: "one device of a network", kubelet: []string{"c1: intel.com/vf=" + devB + "," + devA}, env: []string{env + devA + "," + devB},
			setup: func(n *node) { n.writeCNIFile("ns/net", "net1", pciInfo(devA)) }, want: "intel.com/vf/" + devB + "=" + devB},
		{name: "one device of a network with invalid device-info", kubelet: []string{"c1: intel.com/vf=" + devB + "," + devA}, env: []string{env + devA},
			setup: func(n *node) {
				n.writeCNIFile("ns/net", "net1", "nonsense")
				n.writeMultusRecord(vfNetworkEntry("ns/net", devA))
			}, want: "intel.com/vf/" + devB + "=" + devB},
		{name: "one device of networks in conflict", kubelet: []string{"c1: intel.com/vf=" + devB + "," + devA}, env: []string{env + devA},
			setup: func(n *node) {
				n.writeCNIFile("ns/net", "net1", pciInfo(devA))
				n.writeCNIFile("ns/other", "net1", pciInfo(devA))
			}, want: "intel.com/vf/" + devB + "=" + devB},
		{name: "a device that is not a PCI or vDPA device", kubelet: []string{"c1: nvidia.com/gpu=GPU-1 example.com/vhost=s1 intel.com/vf=" + devA}, env: []string{env + devA},
			setup: func(n *node) { n.writeDPFile("example.com/vhost", "s1", vhostInfo) }, want: "intel.com/vf/" + devA + "=" + devA},
		{name: "an ID whose device is in the plugin's file", kubelet: []string{"c1: intel.com/vf=port-7"}, env: []string{env + "port-7"},
			setup: func(n *node) { n.writeDPFile(vf, "port-7", pciInfo(devA)) }, want: "intel.com/vf/port-7=" + devA},
		{name: "the kubelet's ID and the environment's differ", kubelet: []string{"c1: intel.com/vf=port-7"}, env: []string{env + devA},
			setup: func(n *node) { n.writeDPFile(vf, "port-7", pciInfo(devA)) }, want: "intel.com/vf/port-7=" + devA},
		{name: "one device from two pools", kubelet: []string{"c1: intel.com/a=" + devA + " intel.com/b=" + devA}, env: []string{env + devA}, want: "intel.com/a/" + devA + "=" + devA},
		{name: "vDPA", kubelet: []string{"c1: intel.com/vf=" + devA}, env: []string{env + devA},
			setup: func(n *node) { n.writeDPFile(vf, devA, vdpaInfo("vdpa0", devA)) }, want: "intel.com/vf/" + devA + "=" + devA},
		{name: "no variable and no attachment: the kubelet is not called", kubelet: []string{"c1: intel.com/vf=" + devA}},
		{name: "an attachment with a device: the kubelet is called", kubelet: []string{"c1: intel.com/vf=" + devA + "," + devB}, setup: func(n *node) { n.writeCNIFile("ns/net", "net1", pciInfo(devB)) },
			want: "intel.com/vf/" + devA + "=" + devA},
		{name: "an init container", kubelet: []string{"c2: intel.com/vf=" + devA}, env: []string{env + devA}},
		{name: "the environment alone, without a socket", env: []string{env + devA + ",port-7,port-8"}, setup: func(n *node) { n.writeDPFile(vf, "port-7", pciInfo(devB)) },
			want: "intel.com/vf/" + devA + "=" + devA + " intel.com/vf/port-7=" + devB, note: "pod's author can set it too"},
		{name: "the environment alone, without the resource's name", env: []string{env + devA}, want: "/" + devA + "=" + devA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			if tc.setup != nil {
				tc.setup(n)
			}
			if tc.kubelet != nil {
				n.allocate(tc.kubelet...)
			}
			as, err := n.newFinder().findAllocated(t.Context(), newQuery(tc.env...))
			testkit.Must(t, err)
			var got []string
			noted := tc.note == ""
			for _, a := range as {
				if a.Err != nil || a.Owner != OwnedHere || a.OwnerFrom == "" || a.IfName != "" || a.Network != "" {
					t.Errorf("got %+v", a)
				}
				got = append(got, fmt.Sprintf("%s/%s=%s", a.Resource, a.DeviceID, a.Device))
				noted = noted || hasNote(a, tc.note)
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("allocated devices %q, want %q", s, tc.want)
			}
			if !noted {
				t.Errorf("no note with %q in %+v", tc.note, as)
			}
		})
	}
}

// A variable with a device that the kubelet did not allocate is a conflict.
func TestForgedVariableIsConflict(t *testing.T) {
	for _, tc := range []struct {
		name    string
		kubelet []string
		want    []string
	}{
		{"allocated to another container", []string{"c1: intel.com/vf=" + devB, "c2: intel.com/vf=" + devA}, []string{"PCIDEVICE_X", `"c2"`, devA}},
		{"not allocated", []string{"c1: ", "c2: "}, []string{"PCIDEVICE_X", "no container of the pod", devA}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.allocate(tc.kubelet...)
			as, err := n.newFinder().findAllocated(t.Context(), newQuery("PCIDEVICE_X="+devA))
			testkit.Must(t, err)
			for _, a := range as {
				if a.DeviceID == devB {
					continue
				}
				wantConflict(t, a.Err, tc.want...)
				if a.Owner != OwnerUnknown || a.Info != nil {
					t.Errorf("got %+v", a)
				}
			}
			if len(as) == 0 {
				t.Error("no error was reported")
			}
		})
	}
	n := newNode(t)
	n.useKubelet(&fakeKubelet{err: fmt.Errorf("refused: %w", errdefs.ErrUnavailable)})
	as, err := n.newFinder().findAllocated(t.Context(), newQuery("PCIDEVICE_X="+devA))
	if a := wantOneAttachment(t, as, err); !errdefs.IsUnavailable(a.Err) || a.Owner != OwnerUnknown {
		t.Errorf("kubelet error: %+v", a)
	}
}

// PCIDEVICE_*_INFO completes the description of a device.
func TestInfoVariableCompletesDevice(t *testing.T) {
	info := fmt.Sprintf(`PCIDEVICE_INTEL_COM_VF_INFO={%q:{"generic":{"deviceID":%q},"vfio":{"mount":"/dev/vfio/vfio","dev-mount":"/dev/vfio/12"},`+
		`"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"},"rdma":{"rdma_dev":"mlx5_2","uverbs":"/dev/infiniband/uverbs2"}}}`, devA, devA)
	n := newNode(t)
	n.allocate("c1: intel.com/vf="+devA, "c2: ")
	n.writeCNIFile("ns/net", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"`+devA+`","rdma-device":"mlx5_7"}}`)
	f := n.newFinder()
	as, err := f.findNetworks(t.Context(), newQuery("PCIDEVICE_INTEL_COM_VF="+devA, info))
	a := wantOneAttachment(t, as, err)
	if a.Info.PCI.VhostNet != "/dev/vhost-net" || a.Info.PCI.RDMADevice != "mlx5_7" {
		t.Errorf("device-info %+v", a.Info.PCI)
	}
	if got := strings.Join(a.Announced, " "); got != "/dev/infiniband/uverbs2 /dev/net/tun /dev/vfio/12 /dev/vfio/vfio /dev/vhost-net" {
		t.Errorf("announced nodes %s", got)
	}
	if !hasNote(a, "PCIDEVICE_INTEL_COM_VF_INFO") {
		t.Errorf("notes %q", a.Notes)
	}
	// It does not complete the description of another container's device.
	q := newQuery("PCIDEVICE_INTEL_COM_VF="+devB, info)
	q.Container = "c2"
	as, err = f.findNetworks(t.Context(), q)
	if a := wantOneAttachment(t, as, err); a.Owner != OwnedElsewhere || a.Info.PCI.VhostNet != "" || a.Announced != nil {
		t.Errorf("another container's device: %+v, %+v", a, a.Info.PCI)
	}
}

func TestResourceHasAllocatedDevices(t *testing.T) {
	const env = "PCIDEVICE_INTEL_COM_VF="
	for _, tc := range []struct {
		name         string
		setup        func(n *node)
		kubelet      []string
		env          []string
		resource, id string
		want         string // IDs
		is           func(error) bool
		names        []string // in the error
	}{
		{name: "all devices of the resource", kubelet: []string{"c1: intel.com/vf=" + devA + "," + devB}, want: devA + " " + devB},
		{name: "a malformed address", kubelet: []string{"c1: intel.com/vf=0000:3b:00.2"}, id: "3b:0.2", is: errdefs.IsNotFound, names: []string{"did you mean 0000:3b:00.2?"}},
		{name: "one device of the resource", kubelet: []string{"c1: intel.com/vf=" + devA + "," + devB}, id: devB, want: devB},
		{name: "confirmed by the environment", kubelet: []string{"c1: intel.com/vf=" + devA}, env: []string{env + devA}, want: devA},
		{name: "allocated to another container", kubelet: []string{"c1: ", "c2: intel.com/vf=" + devA}, is: errdefs.IsNotFound, names: []string{vf, "resources.limits"}},
		{name: "an extended resource of a DRA driver", kubelet: []string{"c1: claim:fwd-0-extended-resources-x7k2p=nic-0"}, is: errdefs.IsNotFound,
			names: []string{vf, "ns/fwd-0-extended-resources-x7k2p", "resource:" + vf, "resourceClaims"}},
		{name: "a claim of the pod's own", kubelet: []string{"c1: claim:nics=nic-0"}, is: errdefs.IsNotFound, names: []string{vf, "under resources.limits"}},
		{name: "device that is not allocated", kubelet: []string{"c1: intel.com/vf=" + devA}, id: devB, is: errdefs.IsNotFound, names: []string{devB, devA}},
		{name: "forged variable", kubelet: []string{"c1: intel.com/vf=" + devA, "c2: intel.com/vf=" + devB}, env: []string{env + devB}, is: errdefs.IsConflict,
			names: []string{"PCIDEVICE_INTEL_COM_VF", devB, `"c2"`, socket}},
		{name: "an init container", kubelet: []string{"c2: intel.com/vf=" + devA}, env: []string{env + devA}, is: errdefs.IsNotFound, names: []string{"init container"}},
		{name: "no socket", env: []string{env + devA}, want: devA},
		{name: "no socket and no variable", is: errdefs.IsNotFound, names: []string{"PCIDEVICE_INTEL_COM_VF"}},
		{name: "a socket's device-info", resource: "example.com/vhost", kubelet: []string{"c1: example.com/vhost=s1"},
			setup: func(n *node) { n.writeDPFile("example.com/vhost", "s1", vhostInfo) }, want: "s1"},
		{name: "two resources with one variable", resource: "intel.com/v_f", kubelet: []string{"c1: intel.com/v_f=" + devA + " intel.com/v.f=" + devB},
			env: []string{"PCIDEVICE_INTEL_COM_V_F=" + devB}, want: devA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			if tc.setup != nil {
				tc.setup(n)
			}
			if tc.kubelet != nil {
				n.allocate(tc.kubelet...)
			}
			if tc.resource == "" {
				tc.resource = vf
			}
			as, err := n.newFinder().Search(t.Context(), newQuery(tc.env...)).Resource(tc.resource, tc.id)
			if tc.is != nil {
				if err == nil || !tc.is(err) {
					t.Fatalf("error %v has the wrong kind", err)
				}
				for _, name := range tc.names {
					if !strings.Contains(err.Error(), name) {
						t.Errorf("the error does not name %q: %v", name, err)
					}
				}
				return
			}
			testkit.Must(t, err)
			var got []string
			for _, a := range as {
				if a.Err != nil || a.Owner != OwnedHere || a.Resource != tc.resource {
					t.Errorf("got %+v", a)
				}
				got = append(got, a.DeviceID)
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("got devices %s, want %s", s, tc.want)
			}
		})
	}
	// A device without any description has an error; the other one is returned.
	n := newNode(t)
	n.allocate("c1: intel.com/vf=port-7," + devA)
	as, err := n.newFinder().Search(t.Context(), newQuery()).Resource(vf, "")
	testkit.Must(t, err)
	if len(as) != 2 || as[0].DeviceID != "port-7" || !errdefs.IsNotFound(as[0].Err) && !errdefs.IsNotFound(as[1].Err) {
		t.Errorf("got %+v", as)
	}
	if file, _ := (deviceinfo.DevicePluginDir{}).Path(vf, "port-7"); !strings.Contains(fmt.Sprint(as[0].Err), filepath.Base(file)) {
		t.Errorf("the error does not name the file: %v", as[0].Err)
	}
}
