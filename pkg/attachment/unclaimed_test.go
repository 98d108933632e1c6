// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// What was allocated to a container and no network claims.
func TestAllocated(t *testing.T) {
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
			env: []string{env + devB, "PCIDEVICE_INTEL_COM_FPGA=" + devA}, setup: func(n *node) { n.dp(vf, devB, pciInfo(devB)) },
			want: "intel.com/fpga/" + devA + "=" + devA + " intel.com/vf/" + devB + "=" + devB, note: "taken for a PCI address"},
		{name: "one is a network's", kubelet: []string{"c1: intel.com/vf=" + devB + "," + devA}, env: []string{env + devA + "," + devB},
			setup: func(n *node) { n.cni("ns/net", "net1", pciInfo(devA)) }, want: "intel.com/vf/" + devB + "=" + devB},
		{name: "one is a network's whose device-info is broken", kubelet: []string{"c1: intel.com/vf=" + devB + "," + devA}, env: []string{env + devA},
			setup: func(n *node) { n.cni("ns/net", "net1", "nonsense"); n.multus(vfNet("ns/net", devA)) }, want: "intel.com/vf/" + devB + "=" + devB},
		{name: "one is a network's in a conflict", kubelet: []string{"c1: intel.com/vf=" + devB + "," + devA}, env: []string{env + devA},
			setup: func(n *node) { n.cni("ns/net", "net1", pciInfo(devA)); n.cni("ns/other", "net1", pciInfo(devA)) }, want: "intel.com/vf/" + devB + "=" + devB},
		{name: "what is no device of ours", kubelet: []string{"c1: nvidia.com/gpu=GPU-1 example.com/vhost=s1 intel.com/vf=" + devA}, env: []string{env + devA},
			setup: func(n *node) { n.dp("example.com/vhost", "s1", vhostInfo) }, want: "intel.com/vf/" + devA + "=" + devA},
		{name: "an ID that the plugin's file explains", kubelet: []string{"c1: intel.com/vf=port-7"}, env: []string{env + "port-7"},
			setup: func(n *node) { n.dp(vf, "port-7", pciInfo(devA)) }, want: "intel.com/vf/port-7=" + devA},
		{name: "the kubelet's ID and the environment's differ", kubelet: []string{"c1: intel.com/vf=port-7"}, env: []string{env + devA},
			setup: func(n *node) { n.dp(vf, "port-7", pciInfo(devA)) }, want: "intel.com/vf/port-7=" + devA},
		{name: "one device from two pools", kubelet: []string{"c1: intel.com/a=" + devA + " intel.com/b=" + devA}, env: []string{env + devA}, want: "intel.com/a/" + devA + "=" + devA},
		{name: "vDPA", kubelet: []string{"c1: intel.com/vf=" + devA}, env: []string{env + devA},
			setup: func(n *node) { n.dp(vf, devA, vdpaInfo("vdpa0", devA)) }, want: "intel.com/vf/" + devA + "=" + devA},
		{name: "no hint, no question", kubelet: []string{"c1: intel.com/vf=" + devA}},
		{name: "an attachment is a hint", kubelet: []string{"c1: intel.com/vf=" + devA + "," + devB}, setup: func(n *node) { n.cni("ns/net", "net1", pciInfo(devB)) },
			want: "intel.com/vf/" + devA + "=" + devA},
		{name: "an init container", kubelet: []string{"c2: intel.com/vf=" + devA}, env: []string{env + devA}},
		{name: "the environment alone, without a socket", env: []string{env + devA + ",port-7,port-8"}, setup: func(n *node) { n.dp(vf, "port-7", pciInfo(devB)) },
			want: "intel.com/vf/" + devA + "=" + devA + " intel.com/vf/port-7=" + devB, note: "pod's author can write"},
		{name: "the environment alone, and nothing has the resource's name", env: []string{env + devA}, want: "/" + devA + "=" + devA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			if tc.setup != nil {
				tc.setup(n)
			}
			if tc.kubelet != nil {
				n.gives(tc.kubelet...)
			}
			as, err := n.finder().Allocated(t.Context(), query(tc.env...))
			check(t, err)
			var got []string
			noted := tc.note == ""
			for _, a := range as {
				if a.Err != nil || a.Owner != OwnedHere || a.OwnerFrom == "" || a.IfName != "" || a.Network != "" {
					t.Errorf("found %+v", a)
				}
				got = append(got, fmt.Sprintf("%s/%s=%s", a.Resource, a.DeviceID, a.Device))
				noted = noted || hasNote(a, tc.note)
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("allocated are %q, want %q", s, tc.want)
			}
			if !noted {
				t.Errorf("no note with %q in %+v", tc.note, as)
			}
		})
	}
}

// A variable that claims what the kubelet did not give brings nothing.
func TestAllocatedIsNotForged(t *testing.T) {
	for _, tc := range []struct {
		name    string
		kubelet []string
		want    []string
	}{
		{"another container's", []string{"c1: intel.com/vf=" + devB, "c2: intel.com/vf=" + devA}, []string{"PCIDEVICE_X", `"c2"`, devA}},
		{"nobody's", []string{"c1: ", "c2: "}, []string{"PCIDEVICE_X", "no container of the pod", devA}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			n.gives(tc.kubelet...)
			as, err := n.finder().Allocated(t.Context(), query("PCIDEVICE_X="+devA))
			check(t, err)
			for _, a := range as {
				if a.DeviceID == devB {
					continue
				}
				wantConflict(t, a.Err, tc.want...)
				if a.Owner != OwnerUnknown || a.Info != nil {
					t.Errorf("found %+v", a)
				}
			}
			if len(as) == 0 {
				t.Error("nothing was said")
			}
		})
	}
	n := newNode(t)
	n.useKubelet(&fakeKubelet{err: fmt.Errorf("refused: %w", errdefs.ErrUnavailable)})
	as, err := n.finder().Allocated(t.Context(), query("PCIDEVICE_X="+devA))
	if a := one(t, as, err); !errdefs.IsUnavailable(a.Err) || a.Owner != OwnerUnknown {
		t.Errorf("without an answer: %+v", a)
	}
}

// What only the device plugin's environment tells of a device.
func TestInfoCompletesTheDevice(t *testing.T) {
	info := fmt.Sprintf(`PCIDEVICE_INTEL_COM_VF_INFO={%q:{"generic":{"deviceID":%q},"vfio":{"mount":"/dev/vfio/vfio","dev-mount":"/dev/vfio/12"},`+
		`"vhost":{"net-mount":"/dev/vhost-net","tun-mount":"/dev/net/tun"},"rdma":{"rdma_dev":"mlx5_2","uverbs":"/dev/infiniband/uverbs2"}}}`, devA, devA)
	n := newNode(t)
	n.gives("c1: intel.com/vf="+devA, "c2: ")
	n.cni("ns/net", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"`+devA+`","rdma-device":"mlx5_7"}}`)
	f := n.finder()
	as, err := f.Sandbox(t.Context(), query("PCIDEVICE_INTEL_COM_VF="+devA, info))
	a := one(t, as, err)
	if a.Info.PCI.VhostNet != "/dev/vhost-net" || a.Info.PCI.RDMADevice != "mlx5_7" {
		t.Errorf("device-info is %+v", a.Info.PCI)
	}
	if got := strings.Join(a.Announced, " "); got != "/dev/infiniband/uverbs2 /dev/net/tun /dev/vfio/12 /dev/vfio/vfio /dev/vhost-net" {
		t.Errorf("announced are %s", got)
	}
	if !hasNote(a, "PCIDEVICE_INTEL_COM_VF_INFO") {
		t.Errorf("notes are %q", a.Notes)
	}
	// Of a device that is not the container's, nothing is taken.
	q := query("PCIDEVICE_INTEL_COM_VF="+devB, info)
	q.Container = "c2"
	as, err = f.Sandbox(t.Context(), q)
	if a := one(t, as, err); a.Owner != OwnedElsewhere || a.Info.PCI.VhostNet != "" || a.Announced != nil {
		t.Errorf("another container's device: %+v, %+v", a, a.Info.PCI)
	}
}

func TestResource(t *testing.T) {
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
		{name: "all of it", kubelet: []string{"c1: intel.com/vf=" + devA + "," + devB}, want: devA + " " + devB},
		{name: "a malformed address", kubelet: []string{"c1: intel.com/vf=0000:3b:00.2"}, id: "3b:0.2", is: errdefs.IsNotFound, names: []string{"did you mean 0000:3b:00.2?"}},
		{name: "one of it", kubelet: []string{"c1: intel.com/vf=" + devA + "," + devB}, id: devB, want: devB},
		{name: "with the environment's consent", kubelet: []string{"c1: intel.com/vf=" + devA}, env: []string{env + devA}, want: devA},
		{name: "another container's", kubelet: []string{"c1: ", "c2: intel.com/vf=" + devA}, is: errdefs.IsNotFound, names: []string{vf, "resources.limits"}},
		{name: "one that was not given", kubelet: []string{"c1: intel.com/vf=" + devA}, id: devB, is: errdefs.IsNotFound, names: []string{devB, devA}},
		{name: "forged", kubelet: []string{"c1: intel.com/vf=" + devA, "c2: intel.com/vf=" + devB}, env: []string{env + devB}, is: errdefs.IsConflict,
			names: []string{"PCIDEVICE_INTEL_COM_VF", devB, `"c2"`, socket}},
		{name: "an init container", kubelet: []string{"c2: intel.com/vf=" + devA}, env: []string{env + devA}, is: errdefs.IsNotFound, names: []string{"init container"}},
		{name: "no socket", env: []string{env + devA}, want: devA},
		{name: "no socket and no variable", is: errdefs.IsNotFound, names: []string{"PCIDEVICE_INTEL_COM_VF"}},
		{name: "a socket's device-info", resource: "example.com/vhost", kubelet: []string{"c1: example.com/vhost=s1"},
			setup: func(n *node) { n.dp("example.com/vhost", "s1", vhostInfo) }, want: "s1"},
		{name: "two resources with one variable", resource: "intel.com/v_f", kubelet: []string{"c1: intel.com/v_f=" + devA + " intel.com/v.f=" + devB},
			env: []string{"PCIDEVICE_INTEL_COM_V_F=" + devB}, want: devA},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := newNode(t)
			if tc.setup != nil {
				tc.setup(n)
			}
			if tc.kubelet != nil {
				n.gives(tc.kubelet...)
			}
			if tc.resource == "" {
				tc.resource = vf
			}
			as, err := n.finder().Resource(t.Context(), query(tc.env...), tc.resource, tc.id)
			if tc.is != nil {
				if err == nil || !tc.is(err) {
					t.Fatalf("the error is %v", err)
				}
				for _, name := range tc.names {
					if !strings.Contains(err.Error(), name) {
						t.Errorf("the error does not name %q: %v", name, err)
					}
				}
				return
			}
			check(t, err)
			var got []string
			for _, a := range as {
				if a.Err != nil || a.Owner != OwnedHere || a.Resource != tc.resource {
					t.Errorf("found %+v", a)
				}
				got = append(got, a.DeviceID)
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("found %s, want %s", s, tc.want)
			}
		})
	}
	// A device that nothing describes is an error of its own.
	n := newNode(t)
	n.gives("c1: intel.com/vf=port-7," + devA)
	as, err := n.finder().Resource(t.Context(), query(), vf, "")
	check(t, err)
	if len(as) != 2 || as[0].DeviceID != "port-7" || !errdefs.IsNotFound(as[0].Err) && !errdefs.IsNotFound(as[1].Err) {
		t.Errorf("found %+v", as)
	}
	if name, _ := deviceinfo.DPFileName(vf, "port-7"); !strings.Contains(fmt.Sprint(as[0].Err), name) {
		t.Errorf("the error does not name the file: %v", as[0].Err)
	}
}
