// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"testing"

	"github.com/jackfield/jackfield/pkg/hostfs"
	"github.com/jackfield/jackfield/pkg/sysfs"
)

func BenchmarkLookup(b *testing.B) {
	tree := newTree(b)
	must(b, tree.AddPCI(vf, "vfio-pci", 42), tree.AddVFIO(42, dev(42), dev(1)), tree.AddIOMMUFD(vf, 0, dev(7), dev(2)),
		tree.AddPCI(vf2, "mlx5_core", 1), tree.AddRDMA(vf2, "mlx5_4", 4, dev(4), dev(9)),
		tree.AddVhostNet(dev(60), dev(61)), tree.AddVDPA("vdpa0", "vhost_vdpa", vf, 0, dev(70)))
	host := tree.Root()
	run := func(name string, look func(hostfs.Root) error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := look(host); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("vfio+iommufd", func(h hostfs.Root) error { _, err := sysfs.Nodes(h, vf); return err })
	run("netdev", func(h hostfs.Root) error { _, err := sysfs.Nodes(h, vf2); return err })
	run("rdma", func(h hostfs.Root) error { _, err := sysfs.RDMA(h, vf2, []string{"mlx5_4"}); return err })
	run("vhost-net", func(h hostfs.Root) error { _, err := sysfs.VhostNet(h); return err })
	run("vdpa", func(h hostfs.Root) error { _, err := sysfs.VDPA(h, "vdpa0"); return err })
}
