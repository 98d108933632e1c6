// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

const real = "/sys/devices/pci0000:00/" + vf

// errorCases are changes that break an intact host tree. Each is one entry of
// the golden file.
func errorCases() []struct {
	name     string
	breakIt  func(*sysfstest.Tree) error
	lookUp   func(hostfs.Root) error
	sentinel error
} {
	nodes := func(h hostfs.Root) error { _, err := sysfs.Nodes(h, vf); return err }
	rdma := func(h hostfs.Root) error { _, err := sysfs.RDMA(h, vf2, []string{"mlx5_4"}); return err }
	vhost := func(h hostfs.Root) error { _, err := sysfs.VhostNet(h); return err }
	vdpa := func(h hostfs.Root) error { _, err := sysfs.VDPA(h, "vdpa0"); return err }
	remove := func(p ...string) func(*sysfstest.Tree) error {
		return func(t *sysfstest.Tree) error {
			var errs []error
			for _, p := range p {
				errs = append(errs, t.Remove(p))
			}
			return errors.Join(errs...)
		}
	}
	fifo := func(p string) func(*sysfstest.Tree) error {
		return func(t *sysfstest.Tree) error { return errors.Join(t.Remove(p), unix.Mkfifo(t.Path(p), 0o666)) }
	}
	write := func(p, content string) func(*sysfstest.Tree) error {
		return func(t *sysfstest.Tree) error { return errors.Join(t.Remove(p), t.WriteFile(p, content)) }
	}
	symlink := func(p, text string) func(*sysfstest.Tree) error {
		return func(t *sysfstest.Tree) error { return t.Symlink(p, text) }
	}
	sparse := func(p string) func(*sysfstest.Tree) error {
		return func(t *sysfstest.Tree) error {
			return errors.Join(t.Remove(p), t.WriteFile(p, ""), os.Truncate(t.Path(p), 1<<30))
		}
	}
	const verbs = "/sys/devices/pci0000:00/" + vf2 + "/infiniband_verbs/uverbs4"
	return []struct {
		name     string
		breakIt  func(*sysfstest.Tree) error
		lookUp   func(hostfs.Root) error
		sentinel error
	}{
		{"no such device", remove(real), nodes, errdefs.ErrNotFound},
		{"no driver", func(t *sysfstest.Tree) error { return t.AddPCI(vf, "", 42) }, nodes, errdefs.ErrFailedPrecondition},
		{"reserved", func(t *sysfstest.Tree) error { return t.AddPCI(vf, "pci-stub", 42) }, nodes, errdefs.ErrFailedPrecondition},
		{"uio without a device", func(t *sysfstest.Tree) error { return t.AddPCI(vf, "igb_uio", 42) }, nodes, errdefs.ErrNotFound},
		{"driver is a FIFO", fifo(real + "/driver"), nodes, errdefs.ErrInvalidArgument},
		{"driver is a directory", func(t *sysfstest.Tree) error {
			return errors.Join(t.Remove(real+"/driver"), t.Mkdir(real+"/driver"))
		}, nodes, errdefs.ErrInvalidArgument},
		{"no group", remove(real + "/iommu_group"), nodes, errdefs.ErrNotFound},
		{"group is no number", symlink(real+"/iommu_group", "../../../kernel/iommu_groups/../../../etc"), nodes, errdefs.ErrInvalidArgument},
		{"group name is a FIFO", fifo("/sys/kernel/iommu_groups/42/name"), nodes, errdefs.ErrInvalidArgument},
		{"group name is 1 GiB", sparse("/sys/kernel/iommu_groups/42/name"), nodes, errdefs.ErrInvalidArgument},
		{"physfn is no device", symlink(real+"/physfn", "../../etc"), nodes, errdefs.ErrInvalidArgument},
		{"no group node", remove("/dev/vfio/42"), nodes, errdefs.ErrNotFound},
		{"no vfio container node", remove("/dev/vfio/vfio"), nodes, errdefs.ErrNotFound},
		{"group node is a symlink", symlink("/dev/vfio/42", "vfio"), nodes, errdefs.ErrInvalidArgument},
		{"group node is a file", write("/dev/vfio/42", ""), nodes, errdefs.ErrInvalidArgument},
		{"group node is a FIFO", fifo("/dev/vfio/42"), nodes, errdefs.ErrInvalidArgument},
		{"group node is a block device", func(t *sysfstest.Tree) error {
			return errors.Join(t.Remove("/dev/vfio/42"), unix.Mknod(t.Path("/dev/vfio/42"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))))
		}, nodes, errdefs.ErrInvalidArgument},
		{"group node has other numbers", func(t *sysfstest.Tree) error { return t.Node("/dev/vfio/42", 0o600, dev(77)) }, nodes, errdefs.ErrConflict},
		{"dev file is a FIFO", fifo("/sys/devices/virtual/vfio/42/dev"), nodes, errdefs.ErrInvalidArgument},
		{"dev file is no number", write("/sys/devices/virtual/vfio/42/dev", "240:forty-two\n"), nodes, errdefs.ErrInvalidArgument},
		{"dev file is long", write("/sys/devices/virtual/vfio/42/dev", strings.Repeat("1", 5000)), nodes, errdefs.ErrInvalidArgument},
		{"cdev is a symlink", func(t *sysfstest.Tree) error {
			return errors.Join(t.AddIOMMUFD(vf, 0, dev(7), dev(2)), t.Symlink("/dev/vfio/devices/vfio0", "../42"))
		}, nodes, errdefs.ErrInvalidArgument},
		{"two cdevs", func(t *sysfstest.Tree) error {
			return errors.Join(t.AddIOMMUFD(vf, 0, dev(7), dev(2)), t.AddIOMMUFD(vf, 1, dev(8), dev(2)))
		}, nodes, errdefs.ErrInvalidArgument},
		{"vfio-dev is a file", write(real+"/vfio-dev", ""), nodes, errdefs.ErrInvalidArgument},
		{"vfio-dev is huge", func(t *sysfstest.Tree) error {
			errs := []error{t.Mkdir(real + "/vfio-dev")}
			for i := range 1100 {
				errs = append(errs, t.WriteFile(fmt.Sprintf("%s/vfio-dev/x%d", real, i), ""))
			}
			return errors.Join(errs...)
		}, nodes, errdefs.ErrResourceExhausted},
		{"symlink loop", symlink("/sys/bus/pci/devices/"+vf, vf), nodes, errdefs.ErrPermissionDenied},
		{"no tun", remove("/dev/net/tun"), vhost, errdefs.ErrNotFound},
		{"no vhost-net", remove("/dev/vhost-net"), vhost, errdefs.ErrNotFound},
		{"vhost-net is a file", write("/dev/vhost-net", ""), vhost, errdefs.ErrInvalidArgument},
		{"RDMA name of another function", remove(verbs, "/sys/devices/pci0000:00/"+vf2+"/infiniband/mlx5_4",
			"/sys/devices/pci0000:00/"+vf2+"/infiniband_mad"), rdma, errdefs.ErrConflict},
		{"no RDMA at all", remove("/sys/devices/pci0000:00/"+vf2+"/infiniband", "/sys/devices/pci0000:00/"+vf2+"/infiniband_verbs",
			"/sys/devices/pci0000:00/"+vf2+"/infiniband_mad"), rdma, errdefs.ErrNotFound},
		{"no verbs", remove("/sys/devices/pci0000:00/" + vf2 + "/infiniband_verbs"), rdma, errdefs.ErrNotFound},
		{"no verbs node", remove("/dev/infiniband/uverbs4"), rdma, errdefs.ErrNotFound},
		{"ibdev is missing", remove(verbs + "/ibdev"), rdma, errdefs.ErrInvalidArgument},
		{"ibdev is a path", write(verbs+"/ibdev", "../../etc\n"), rdma, errdefs.ErrInvalidArgument},
		{"verbs dev is missing", remove(verbs + "/dev"), rdma, errdefs.ErrNotFound},
		{"no such vDPA device", remove("/sys/bus/vdpa/devices/vdpa0"), vdpa, errdefs.ErrNotFound},
		{"vDPA without driver", func(t *sysfstest.Tree) error { return t.AddVDPA("vdpa0", "", vf, 0, dev(0)) }, vdpa, errdefs.ErrFailedPrecondition},
		{"vDPA with another driver", func(t *sysfstest.Tree) error { return t.AddVDPA("vdpa0", "odd", vf, 0, dev(0)) }, vdpa, errdefs.ErrFailedPrecondition},
		{"vDPA without entry", remove(real + "/vdpa0/vhost-vdpa-0"), vdpa, errdefs.ErrNotFound},
		{"vDPA without node", remove("/dev/vhost-vdpa-0"), vdpa, errdefs.ErrNotFound},
		{"vDPA node is stale", func(t *sysfstest.Tree) error { return t.Node("/dev/vhost-vdpa-0", 0o600, dev(9)) }, vdpa, errdefs.ErrConflict},
	}
}

func TestFaultySysfsHasGoldenMessages(t *testing.T) {
	var b strings.Builder
	for _, c := range errorCases() {
		t.Run(c.name, func(t *testing.T) {
			tree := newTree(t)
			must(t, tree.AddPCI(vf, "vfio-pci", 42), tree.AddVFIO(42, dev(42), dev(1)),
				tree.AddPCI(vf2, "mlx5_core", 43), tree.AddRDMA(vf2, "mlx5_4", 4, dev(4), dev(9)), tree.AddRDMA(vf2, "mlx5_5", 5, dev(5), dev(9)),
				tree.AddVhostNet(dev(60), dev(61)), tree.AddVDPA("vdpa0", "vhost_vdpa", vf, 0, dev(70)))
			if err := c.lookUp(tree.Root()); err != nil {
				t.Fatalf("intact tree: %v", err)
			}
			must(t, c.breakIt(tree))
			var err error
			testkit.Cheap(t, time.Second, func() { err = c.lookUp(tree.Root()) })
			if !errors.Is(err, c.sentinel) {
				t.Fatalf("error is %v, want %v", err, c.sentinel)
			}
			var d *diag.Diagnostic
			if !errors.As(err, &d) || d.File == "" {
				t.Errorf("%v names no file", err)
			}
			fmt.Fprintf(&b, "%s\n    %v\n", c.name, err)
		})
	}
	if !t.Failed() && b.Len() > 0 { // a skipped case writes nothing
		golden(t, "testdata/errors.golden", b.String())
	}
}

// A name from device-info is checked before any file is accessed.
func TestHostileParameters(t *testing.T) {
	tree := newTree(t)
	host := tree.Root()
	must(t, tree.AddPCI(vf, "mlx5_core", 1), tree.AddRDMA(vf, "mlx5_4", 4, dev(4), dev(9)),
		tree.WriteFile("/etc/passwd", "root"), tree.AddVDPA("vdpa0", "vhost_vdpa", vf, 0, dev(0)))
	bad := []string{"", ".", "..", "../../etc", "/etc", "0000:03:00.3/../..", "0000:03:00.3\x00", "0000:02:01:6", "03:00.3",
		"0000:03:20.0", "0000:03:00.8", "000:03:00.3", "0000:03:00.33", "0000:03:00.3\n", "０000:03:00.3", "0000-03-00.3",
		strings.Repeat("0", 1<<20) + ":03:00.3", "000000000:03:00.3", "+000:03:00.3"}
	for _, s := range bad {
		for what, lookUp := range map[string]func() error{
			"Nodes": func() error { _, err := sysfs.Nodes(host, s); return err },
			"PCI":   func() error { _, err := sysfs.PCI(host, s); return err },
			"RDMA":  func() error { _, err := sysfs.RDMA(host, s, nil); return err },
		} {
			if err := lookUp(); !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("%s(%.40q): %v", what, s, err)
			}
		}
	}
	for _, s := range []string{"", ".", "..", "../vdpa0", "vdpa0/", "vdpa0/driver", "/sys", "vd\x00pa", "vd pa", "vdpa\n", "vdp\u00e4",
		".hidden", `a\b`, strings.Repeat("a", 129)} {
		if _, err := sysfs.VDPA(host, s); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("VDPA(%.40q): %v", s, err)
		}
		if _, err := sysfs.RDMA(host, vf, []string{"mlx5_4", s}); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("RDMA(%.40q): %v", s, err)
		}
	}
	if _, err := sysfs.RDMA(host, vf, make([]string, 65)); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("65 names: %v", err)
	}
}

// A symlink out of the tree is resolved inside it.
func TestSymlinksStayInside(t *testing.T) {
	outside := newTree(t)
	must(t, outside.AddPCI(vf, "vfio-pci", 42), outside.AddVFIO(42, dev(42), dev(1)), outside.AddVDPA("vdpa0", "vhost_vdpa", vf, 0, dev(0)))
	tree := newTree(t)
	must(t,
		tree.Symlink("/sys/bus/pci/devices/"+vf, outside.Path(real)),
		tree.Symlink("/sys/bus/vdpa/devices/vdpa0", strings.Repeat("../", 20)+outside.Path(real + "/vdpa0")[1:]),
	)
	_, err := sysfs.Nodes(tree.Root(), vf)
	wantErr(t, err, errdefs.ErrNotFound, base)
	_, err = sysfs.VDPA(tree.Root(), "vdpa0")
	wantErr(t, err, errdefs.ErrNotFound, "/sys/bus/vdpa/devices/vdpa0")

	must(t, tree.AddPCI(vf2, "vfio-pci", 42), tree.AddVFIO(42, dev(42), dev(1)), tree.Remove("/dev/vfio"),
		tree.Symlink("/dev/vfio", outside.Path("/dev/vfio")))
	_, err = sysfs.Nodes(tree.Root(), vf2)
	wantErr(t, err, errdefs.ErrNotFound, "/dev/vfio/42")
}
