// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

// The golden file holds the nodes of every class on one host.
func TestNodesOfEveryClassAreGolden(t *testing.T) {
	tree := newTree(t)
	must(t,
		tree.AddPCI("0000:03:00.0", "mlx5_core", 1), tree.AddRDMA("0000:03:00.0", "mlx5_0", 0, dev(100), dev(99)),
		tree.AddPCI("0000:03:00.1", "vfio-pci", 42), tree.AddVFIO(42, dev(42), dev(1)),
		tree.AddPCI("0000:03:00.2", "vfio-pci", 3), tree.AddNoIOMMU(3, dev(3), dev(1)),
		tree.AddPCI("0000:03:00.3", "mlx5_vfio_pci", 43), tree.AddVFIO(43, dev(43), dev(1)), tree.AddIOMMUFD("0000:03:00.3", 7, dev(7), dev(2)),
		tree.AddPCI("0000:03:00.4", "igb_uio", sysfstest.NoGroup), tree.AddUIO("0000:03:00.4", 0, dev(50)),
		tree.AddPCI("10000:03:00.5", "iavf", 9),
		tree.AddVhostNet(dev(60), dev(61)),
		tree.AddVDPA("vdpa0", "vhost_vdpa", "0000:03:00.0", 5, dev(70)),
		tree.AddVDPA("vdpa1", "virtio_vdpa", "", 0, dev(0)),
	)
	host := tree.Root()
	var b strings.Builder
	section := func(title string, nodes []sysfs.Node, err error) {
		if err != nil {
			t.Errorf("%s: %v", title, err)
		}
		b.WriteString("# " + title + "\n" + render(nodes))
	}
	for _, address := range []string{"0000:03:00.0", "0000:03:00.1", "0000:03:00.2", "0000:03:00.3", "0000:03:00.4", "10000:03:00.5"} {
		nodes, err := sysfs.Nodes(host, address)
		section("driver of "+address, nodes, err)
	}
	nodes, err := sysfs.RDMA(host, "0000:03:00.0", []string{"mlx5_0"})
	section("RDMA mlx5_0", nodes, err)
	nodes, err = sysfs.VhostNet(host)
	section("vhost-net", nodes, err)
	for _, name := range []string{"vdpa0", "vdpa1"} {
		v, err := sysfs.VDPA(host, name)
		section("vDPA "+name+" driver="+v.Driver+" address="+v.Address, v.Nodes, err)
	}
	golden(t, "testdata/nodes.golden", b.String())
}

func TestPCIFunctionHasDriverGroupAndParent(t *testing.T) {
	tree := newTree(t)
	must(t, tree.AddPCI(pf, "mlx5_core", 1), tree.AddPCI("0000:0a:00.3", "vfio-pci", 42), tree.AddVF("0000:0a:00.3", pf))
	got, err := sysfs.PCI(tree.Root(), "0000:0A:00.3")
	if err != nil {
		t.Fatal(err)
	}
	want := sysfs.PCIDevice{
		Address: "0000:0a:00.3", Dir: "/sys/bus/pci/devices/0000:0a:00.3", Driver: "vfio-pci",
		Kind: sysfs.KindVFIO, IOMMUGroup: "42", Physical: pf,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOwnerAndModeAreTheHostNodes(t *testing.T) {
	tree := newTree(t)
	must(t, tree.AddPCI(vf, "vfio-pci", 42), tree.AddVFIO(42, sysfstest.Null(), sysfstest.Zero()))
	if err := os.Chown(tree.Path("/dev/vfio/42"), 1234, 5678); err != nil {
		t.Skipf("skipped: changing the owner of a node needs CAP_CHOWN: %v", err)
	}
	nodes, err := sysfs.Nodes(tree.Root(), vf)
	if err != nil {
		t.Fatal(err)
	}
	want := sysfs.Node{
		Path: "/dev/vfio/42", VFIO: sysfs.VFIOGroup, Major: 1, Minor: 3,
		PinsMemory: true, FileMode: 0o600, UID: 1234, GID: 5678, From: base + "/iommu_group",
	}
	if diff := cmp.Diff(want, nodes[0]); diff != "" {
		t.Error(diff)
	}
}

func TestEveryLookupReadsSysfsAgain(t *testing.T) {
	tree := newTree(t)
	host := tree.Root()
	must(t, tree.AddPCI(vf, "vfio-pci", 42), tree.AddVFIO(42, dev(42), dev(1)), tree.AddVFIO(43, dev(43), dev(1)))
	for i, step := range []struct {
		do   func() error
		want []string
	}{
		{func() error { return nil }, []string{"/dev/vfio/42", "/dev/vfio/vfio"}},
		{func() error { return tree.AddPCI(vf, "vfio-pci", 43) }, []string{"/dev/vfio/43", "/dev/vfio/vfio"}},
		{func() error { return tree.AddPCI(vf, "iavf", 43) }, nil},
		{func() error { return tree.AddPCI(vf, "vfio-pci", 42) }, []string{"/dev/vfio/42", "/dev/vfio/vfio"}},
		{func() error { return tree.AddIOMMUFD(vf, 0, dev(7), dev(2)) },
			[]string{"/dev/iommu", "/dev/vfio/42", "/dev/vfio/devices/vfio0", "/dev/vfio/vfio"}},
	} {
		must(t, step.do())
		nodes, err := sysfs.Nodes(host, vf)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if diff := cmp.Diff(step.want, paths(nodes)); diff != "" {
			t.Errorf("step %d: %s", i, diff)
		}
	}
	must(t, tree.AddVDPA("vdpa0", "vhost_vdpa", vf, 0, dev(1)))
	for index := range 3 {
		must(t, tree.AddVDPA("vdpa0", "vhost_vdpa", vf, index, dev(uint32(index))))
		v, err := sysfs.VDPA(host, "vdpa0")
		if err != nil || len(v.Nodes) != 1 || v.Nodes[0].Minor != uint32(index) {
			t.Errorf("vhost-vdpa-%d: %+v, %v", index, v, err)
		}
	}
}

func TestIOMMUFDIsAllOrNothing(t *testing.T) {
	both := []string{"/dev/vfio/42", "/dev/vfio/vfio"}
	fd := []string{"/dev/iommu", "/dev/vfio/devices/vfio0"}
	for name, c := range map[string]struct {
		remove []string
		want   []string
	}{
		"no /dev/iommu":         {[]string{"/dev/iommu"}, both},
		"no cdev":               {[]string{"/dev/vfio/devices"}, both},
		"no numbers in sysfs":   {[]string{"/sys/devices/pci0000:00/" + vf + "/vfio-dev/vfio0/dev"}, both},
		"no group node":         {[]string{"/dev/vfio/42"}, fd},
		"no container node":     {[]string{"/dev/vfio/vfio"}, fd},
		"no group at all":       {[]string{"/sys/devices/pci0000:00/" + vf + "/iommu_group"}, fd},
		"no sysfs class, nodes": {[]string{"/sys/class/misc", "/sys/class/vfio"}, []string{"/dev/iommu", "/dev/vfio/42", "/dev/vfio/devices/vfio0", "/dev/vfio/vfio"}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := newTree(t)
			must(t, tree.AddPCI(vf, "vfio-pci", 42), tree.AddVFIO(42, dev(42), dev(1)), tree.AddIOMMUFD(vf, 0, dev(7), dev(2)))
			for _, p := range c.remove {
				must(t, tree.Remove(p))
			}
			nodes, err := sysfs.Nodes(tree.Root(), vf)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, paths(nodes)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestVDPAParentFunction(t *testing.T) {
	tree := newTree(t)
	must(t, tree.AddVDPA("deep", "virtio_vdpa", "0000:03:00.2/mlx5_core.sf.4/mlx5_core.vnet.4", 0, dev(0)))
	v, err := sysfs.VDPA(tree.Root(), "deep")
	if err != nil || v.Address != "0000:03:00.2" || v.Driver != sysfs.VirtioVDPA || v.Nodes != nil {
		t.Errorf("%+v, %v", v, err)
	}
	must(t, tree.AddVDPA("odd:0000:65:00.3", "vhost_vdpa", "", 0, dev(0)))
	v, err = sysfs.VDPA(tree.Root(), "odd:0000:65:00.3")
	if err != nil || v.Address != "" {
		t.Errorf("a software device: %+v, %v", v, err)
	}
}

func TestRDMADeviceIsSelectedByName(t *testing.T) {
	tree := newTree(t)
	host := tree.Root()
	must(t, tree.AddPCI(vf, "mlx5_core", 1), tree.AddPCI(vf2, "mlx5_core", 2),
		tree.AddRDMA(vf, "mlx5_4", 4, dev(4), dev(9)), tree.AddRDMA(vf, "mlx5_5", 5, dev(5), dev(9)),
		tree.AddRDMA(vf2, "mlx5_6", 6, dev(6), dev(9)))
	four := []string{"/dev/infiniband/issm4", "/dev/infiniband/rdma_cm", "/dev/infiniband/umad4", "/dev/infiniband/uverbs4"}
	check := func(names []string, want []string) {
		t.Helper()
		nodes, err := sysfs.RDMA(host, vf, names)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, paths(nodes)); diff != "" {
			t.Error(diff)
		}
	}
	both := []string{"/dev/infiniband/issm4", "/dev/infiniband/issm5", "/dev/infiniband/rdma_cm",
		"/dev/infiniband/umad4", "/dev/infiniband/umad5", "/dev/infiniband/uverbs4", "/dev/infiniband/uverbs5"}
	check([]string{"mlx5_4"}, four)
	check([]string{"mlx5_4", "mlx5_4"}, four)
	check([]string{"mlx5_5", "mlx5_4", "mlx5_5"}, both)

	_, err := sysfs.RDMA(host, vf, []string{"mlx5_4", "mlx5_6"})
	wantErr(t, err, errdefs.ErrConflict, "mlx5_6", vf, base+"/infiniband")

	// The RDMA CNI moves the device into the pod's namespace: the host's
	// infiniband directory becomes empty, and the verbs entries remain.
	must(t, tree.Remove("/sys/devices/pci0000:00/"+vf+"/infiniband"))
	check([]string{"mlx5_4"}, four)

	must(t, tree.Remove("/dev/infiniband/rdma_cm"))
	check([]string{"mlx5_4"}, []string{"/dev/infiniband/issm4", "/dev/infiniband/umad4", "/dev/infiniband/uverbs4"})
	// A kernel without umad.
	must(t, tree.Remove("/sys/devices/pci0000:00/"+vf+"/infiniband_mad"))
	check([]string{"mlx5_4"}, []string{"/dev/infiniband/uverbs4"})
}
