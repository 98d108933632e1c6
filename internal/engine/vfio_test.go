// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

// newVFIOHost returns a host whose policy grants these device nodes, and a request for a container to which a function
// with the nodes of both interfaces of VFIO is allocated.
func newVFIOHost(t *testing.T, devices string) (*host, *sysfstest.Tree, *Request) {
	t.Helper()
	h := newHost(t, "enforce")
	tree, err := sysfstest.New(h.dir)
	testkit.Must(t, err)
	skipWithoutMknod(t, errors.Join(tree.AddPCI("0000:03:00.1", "vfio-pci", 11), tree.AddVFIO(11, sysfstest.Null(), sysfstest.Zero()),
		tree.AddIOMMUFD("0000:03:00.1", 0, sysfstest.Zero(), sysfstest.Null())))
	h.replaceConfig(strings.NewReplacer(`"/dev/vfio/*"`, devices, "MODE", "enforce").Replace(rules))
	h.writeInfo("one", "net1", `{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:03:00.1"}}`)
	r := newRequest("")
	r.Have.Env = []string{"PCIDEVICE_VENDOR_COM_VF=0000:03:00.1"}
	return h, tree, r
}

// The kernel decides whether a host has VFIO's group nodes, those of iommufd, or both. A container gets the nodes of each
// interface that policy grants as a whole.
func TestVFIOInterfacesAreAlternatives(t *testing.T) {
	group, iommufd := []string{"/dev/vfio/11", "/dev/vfio/vfio"}, []string{"/dev/iommu", "/dev/vfio/devices/vfio0"}
	for devices, want := range map[string]struct {
		nodes []string
		note  string
	}{
		`"/dev/vfio/*"`:                                      {group, "/dev/iommu and /dev/vfio/devices/vfio0"},
		`"/dev/vfio/devices/*", "/dev/iommu"`:                {iommufd, "/dev/vfio/11 and /dev/vfio/vfio"},
		`"/dev/vfio/*", "/dev/iommu"`:                        {group, "/dev/iommu and /dev/vfio/devices/vfio0"},
		`"/dev/vfio/*", "/dev/vfio/devices/*", "/dev/iommu"`: {slices.Sorted(slices.Values(slices.Concat(group, iommufd))), ""},
	} {
		h, _, r := newVFIOHost(t, devices)
		p := h.resolve(r)
		var got []string
		for _, d := range p.Set.Devices {
			got = append(got, d.Path)
		}
		slices.Sort(got)
		if !slices.Equal(got, want.nodes) {
			t.Errorf("%s: nodes %q, want %q", devices, got, want.nodes)
		}
		notes := strings.Join(p.Items[0].Notes, "\n")
		if p.Items[0].Outcome != Injected || want.note == "" && strings.Contains(notes, "other interface") || !strings.Contains(notes, want.note) {
			t.Errorf("%s: %s, notes %q, want %q", devices, p.Items[0].Outcome, notes, want.note)
		}
	}
}

// The nodes of one interface that a device plugin has added are enough.
func TestVFIOInterfaceOfDevicePluginIsEnough(t *testing.T) {
	h, _, r := newVFIOHost(t, `"/dev/none"`)
	r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
	for path, minor := range map[string]int64{"/dev/vfio/11": 3, "/dev/vfio/vfio": 5} {
		r.Have.Devices = append(r.Have.Devices, edit.Device{Path: path, Type: "c", Major: 1, Minor: minor})
	}
	if p := h.resolve(r); len(p.Set.Devices) != 0 || p.Items[0].Outcome != Present && p.Items[0].Outcome != Injected {
		t.Errorf("%+v", p.Items)
	}
}

// A refusal has the lines for all nodes of both interfaces. The number of a VFIO device changes when it is bound again.
func TestRefusalProposesAllNodes(t *testing.T) {
	for _, devices := range []string{`"/dev/none"`, `"/dev/vfio/vfio"`} {
		h, _, r := newVFIOHost(t, devices)
		r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
		h.wantRefusal(r, errdefs.IsPermissionDenied, `- "/dev/iommu"`, `- "/dev/vfio/11"`, `- "/dev/vfio/devices/*"`)
	}
}

// A rule that grants a node of the device, and not the others of the interface, refuses the container also if it does
// not request the network. Without a grant of such a node the network is unmanaged.
func TestRuleForSomeNodesRefusesContainer(t *testing.T) {
	for _, devices := range []string{`"/dev/vfio/11"`, `"/dev/vfio/devices/*"`} {
		h, _, r := newVFIOHost(t, devices)
		h.wantRefusal(r, errdefs.IsPermissionDenied, "deny device node", `- "/dev/iommu"`)
	}
	for _, devices := range []string{`"/dev/none"`, `"/dev/vfio/vfio"`, `"/dev/iommu"`, `"/dev/vfio/vfio", "/dev/vfio/12"`} {
		h, _, r := newVFIOHost(t, devices)
		if p := h.resolve(r); p.Items[0].Outcome != Unmanaged {
			t.Errorf("%s: %+v", devices, p.Items)
		}
	}
}

// Audit mode reports the lines that mode enforce would need.
func TestAuditOfDeviceHasLines(t *testing.T) {
	h, _, r := newVFIOHost(t, `"/dev/none"`)
	h.replaceConfig(strings.NewReplacer(`"/dev/vfio/*"`, `"/dev/none"`, "MODE", "audit").Replace(rules))
	r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
	p := h.resolve(r)
	if len(p.Set.Devices) != 4 || !strings.Contains(p.Items[0].Audit, `- "/dev/iommu"`) {
		t.Errorf("%d nodes, audit %q", len(p.Set.Devices), p.Items[0].Audit)
	}
}

// A device whose group belongs to somebody else too is no error for a container that no rule grants it.
func TestIOMMUGroupOfUnmanagedNetworkIsUnmanaged(t *testing.T) {
	h, tree, r := newVFIOHost(t, `"/dev/none"`)
	testkit.Must(t, tree.AddPCI("0000:03:00.2", "vfio-pci", 11))
	if p := h.resolve(r); p.Items[0].Outcome != Unmanaged {
		t.Errorf("%+v", p.Items)
	}
}

// A program that opens an IOMMU group can use all functions in it.
func TestIOMMUGroupWithForeignFunctionIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		neighbour func(*sysfstest.Tree) error
		allocated string
		words     []string // of the refusal; nil for none
	}{
		"alone": {func(*sysfstest.Tree) error { return nil }, "", nil},
		"bridge": {func(t *sysfstest.Tree) error {
			return errors.Join(t.AddPCI("0000:03:00.0", "pcieport", 11),
				t.WriteFile("/sys/bus/pci/devices/0000:03:00.0/class", "0x060400\n"))
		}, "", nil},
		"another group":            {func(t *sysfstest.Tree) error { return t.AddPCI("0000:03:00.2", "vfio-pci", 12) }, "", nil},
		"neighbour":                {func(t *sysfstest.Tree) error { return t.AddPCI("0000:03:00.2", "vfio-pci", 11) }, "", []string{"group 11", "0000:03:00.2", "vfio-pci", "not allocated"}},
		"neighbour without driver": {func(t *sysfstest.Tree) error { return t.AddPCI("0000:03:00.2", "", 11) }, "", []string{"group 11", "0000:03:00.2", "no driver", "not allocated"}},
		"own function":             {func(t *sysfstest.Tree) error { return t.AddPCI("0000:03:00.2", "vfio-pci", 11) }, ",0000:03:00.2", nil},
		"own function on the host": {func(t *sysfstest.Tree) error { return t.AddPCI("0000:03:00.2", "e1000", 11) }, ",0000:03:00.2", []string{"group 11", "0000:03:00.2", `driver "e1000"`, "bind it to vfio-pci"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, tree, r := newVFIOHost(t, `"/dev/vfio/*"`)
			testkit.Must(t, c.neighbour(tree))
			r.Have.Env[0] += c.allocated
			if c.words == nil {
				if p := h.resolve(r); len(p.Set.Devices) == 0 {
					t.Errorf("no device nodes: %+v", p.Items)
				}
				return
			}
			h.wantRefusal(r, errdefs.IsFailedPrecondition, c.words...)
		})
	}
}

// DPDK cannot use a function that is bound to a driver of the kernel, unless it has an RDMA device.
func TestEALArgumentsNeedUsableFunction(t *testing.T) {
	for name, c := range map[string]struct {
		driver, info string
		eal          bool
	}{
		"vfio":           {"vfio-pci", `{"pci-address":"0000:03:00.1"}`, true},
		"kernel driver":  {"igbvf", `{"pci-address":"0000:03:00.1"}`, false},
		"with vhost-net": {"igbvf", `{"pci-address":"0000:03:00.1","vhost-net":"/dev/vhost-net"}`, false},
		"with RDMA":      {"mlx5_core", `{"pci-address":"0000:03:00.1","rdma-device":"mlx5_0"}`, true},
	} {
		h, tree, r := newVFIOHost(t, `"/dev/**"`)
		skipWithoutMknod(t, errors.Join(tree.Remove("/sys/bus/pci/devices/0000:03:00.1/vfio-dev"), tree.AddPCI("0000:03:00.1", c.driver, 11),
			tree.AddVhostNet(sysfstest.Zero(), sysfstest.Null()), tree.AddRDMA("0000:03:00.1", "mlx5_0", 0, sysfstest.Null(), sysfstest.Zero())))
		h.writeInfo("one", "net1", `{"type":"pci","version":"1.1.0","pci":`+c.info+`}`)
		env := planEnv(h.resolve(r))
		if (env["JACKFIELD_NET1_EAL"] != "") != c.eal {
			t.Errorf("%s: JACKFIELD_NET1_EAL is %q", name, env["JACKFIELD_NET1_EAL"])
		}
	}
}
