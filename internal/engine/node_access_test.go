// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/edit"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

// In a user namespace the runtime binds the host's node, with its owner and mode.
func TestNodeThatUserNamespaceCannotOpenIsNoted(t *testing.T) {
	const mapped = 200000
	inNamespace := &UserNS{UIDs: []hostfs.IDMap{{Outside: mapped, Size: 65536}}, GIDs: []hostfs.IDMap{{Outside: mapped, Size: 65536}}}
	for name, c := range map[string]struct {
		info, allocated string
		change          func(h *host) error // of the host's nodes
		user            *User
		ns              *UserNS
		present         bool
		notes           []string // parts of the notes; nil for none
	}{
		"vfio":          {memlockInfo["vfio"], memlockEnv["vfio"], nil, nil, inNamespace, false, []string{"cannot open /dev/vfio/11", "0600", "200000:200000", `SUBSYSTEM=="vfio", MODE="0666"`}},
		"iommufd":       {memlockInfo["vfio"], memlockEnv["vfio"], nil, nil, inNamespace, false, []string{"cannot open /dev/iommu", `KERNEL=="iommu"`, `SUBSYSTEM=="vfio-dev"`}},
		"vdpa":          {memlockInfo["vdpa"], memlockEnv["vdpa"], nil, nil, inNamespace, false, []string{"/dev/vhost-vdpa-0", `SUBSYSTEM=="vdpa", DRIVER=="vhost_vdpa", RUN+="`}},
		"infiniband":    {memlockInfo["rdma"], memlockEnv["rdma"], nil, nil, inNamespace, false, []string{"/dev/infiniband/umad0", `SUBSYSTEM=="infiniband_mad"`}},
		"vhost-net":     {memlockInfo["vhost-net"], memlockEnv["vhost-net"], nil, nil, inNamespace, false, []string{"/dev/vhost-net", "0660", `KERNEL=="vhost-net"`}},
		"uio":           {`{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:05:00.0"}}`, "0000:05:00.0", nil, nil, inNamespace, false, []string{"/dev/uio0", `SUBSYSTEM=="uio"`}},
		"other user":    {memlockInfo["vdpa"], memlockEnv["vdpa"], nil, &User{UID: 7, GID: 8}, inNamespace, false, []string{"200007:200008"}},
		"present":       {memlockInfo["vdpa"], memlockEnv["vdpa"], nil, nil, inNamespace, true, []string{"/dev/vhost-vdpa-0"}},
		"of a manifest": {memlockInfo["vdpa"], memlockEnv["vdpa"], nil, nil, &UserNS{}, false, []string{"/dev/vhost-vdpa-0", "another user of the host"}},
		"no namespace":  {memlockInfo["vdpa"], memlockEnv["vdpa"], nil, nil, nil, false, nil},
		"mode":          {memlockInfo["vdpa"], memlockEnv["vdpa"], func(h *host) error { return os.Chmod(filepath.Join(h.dir, "dev/vhost-vdpa-0"), 0o666) }, nil, inNamespace, false, nil},
		"owner":         {memlockInfo["vdpa"], memlockEnv["vdpa"], func(h *host) error { return os.Chown(filepath.Join(h.dir, "dev/vhost-vdpa-0"), mapped, 0) }, nil, inNamespace, false, nil},
		"group": {memlockInfo["vdpa"], memlockEnv["vdpa"], func(h *host) error {
			node := filepath.Join(h.dir, "dev/vhost-vdpa-0")
			return errors.Join(os.Chown(node, 0, mapped), os.Chmod(node, 0o660))
		}, nil, inNamespace, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h, r := newAccessHost(t)
			h.writeInfo("one", "net1", c.info)
			r.Have.Env, r.User, r.UserNS = []string{"PCIDEVICE_VENDOR_COM_VF=" + c.allocated}, c.user, c.ns
			if c.ns != nil && len(c.ns.UIDs) == 0 {
				r.UserNS, r.UserNSUnknown = nil, true
			}
			if c.change != nil {
				testkit.Must(t, c.change(h))
			}
			if c.present {
				r.Have.Devices = []edit.Device{{Path: "/dev/vhost-vdpa-0", Type: "c", Major: 511}}
				r.Annotations = map[string]string{"networks.jackfield.dev": "net1"}
			}
			notes := strings.Join(h.resolve(r).Items[0].Notes, "\n")
			if c.notes == nil && strings.Contains(notes, "cannot open") {
				t.Errorf("notes %q", notes)
			}
			for _, part := range c.notes {
				if !strings.Contains(notes, part) {
					t.Errorf("notes %q, want %q", notes, part)
				}
			}
		})
	}
}

// newAccessHost returns a host with a device of each kind, each with a number of its own.
func newAccessHost(t *testing.T) (*host, *Request) {
	t.Helper()
	h := newHost(t, "enforce")
	tree, err := sysfstest.New(h.dir)
	testkit.Must(t, err)
	dev := func(minor uint32) sysfstest.Dev { return sysfstest.Dev{Major: 245, Minor: minor} }
	skipWithoutMknod(t, errors.Join(
		tree.AddPCI("0000:03:00.1", "vfio-pci", 11), tree.AddVFIO(11, dev(0), dev(1)), tree.AddIOMMUFD("0000:03:00.1", 0, dev(2), dev(3)),
		tree.AddVDPA("vdpa0", "vhost_vdpa", "", 0, sysfstest.Dev{Major: 511}), tree.AddVhostNet(dev(4), dev(5)),
		tree.AddPCI("0000:04:00.0", "mlx5_core", sysfstest.NoGroup), tree.AddRDMA("0000:04:00.0", "mlx5_0", 0, dev(6), dev(7)),
		tree.AddPCI("0000:05:00.0", "uio_pci_generic", sysfstest.NoGroup), tree.AddUIO("0000:05:00.0", 0, dev(8))))
	h.replaceConfig(strings.NewReplacer(`"/dev/vfio/*"`, `"/dev/**"`, "MODE", "enforce").Replace(rules))
	return h, newRequest("")
}

// The same holds for the nodes of CDI files.
func TestCDINodeThatUserNamespaceCannotOpenIsNoted(t *testing.T) {
	h, _ := newAccessHost(t)
	h.write("/etc/cdi/v.json", `{"cdiVersion":"0.6.0","kind":"vendor.com/net","devices":[{"name":"a","containerEdits":{"deviceNodes":[{"path":"/dev/x","hostPath":"/dev/vfio/11"}]}}]}`)
	r := newRequest("vendor.com/net=a")
	r.UserNS = &UserNS{UIDs: []hostfs.IDMap{{Outside: 200000, Size: 65536}}, GIDs: []hostfs.IDMap{{Outside: 200000, Size: 65536}}}
	if notes := strings.Join(h.resolve(r).Items[0].Notes, "\n"); !strings.Contains(notes, "cannot open /dev/vfio/11") || !strings.Contains(notes, `SUBSYSTEM=="vfio"`) {
		t.Errorf("notes %q", notes)
	}
}
