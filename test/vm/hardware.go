// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// The machine's functions. Those of a card and of a vDPA device are in IOMMU groups of their own.
const (
	pf0, pf1 = "0000:01:00.0", "0000:02:00.0" // igb; their networks are connected
	// VFs of pf0 and of pf1.
	vf0, vf1, vf2, vf3 = "0000:01:10.0", "0000:01:10.2", "0000:01:10.4", "0000:01:10.6"
	otherVF, otherVF1  = "0000:02:10.0", "0000:02:10.2"
	// virtio-net; their networks are connected.
	virtio0, virtio1 = "0000:03:00.0", "0000:04:00.0"
	// Two e1000 in one IOMMU group.
	shared0, shared1 = "0000:06:01.0", "0000:06:02.0"
	// An e1000e that the IOMMU does not translate.
	unprotected = "0000:21:00.0"
)

const pciDevices = "/sys/bus/pci/devices/"

// setUpHardware loads drivers and creates the VFs and the vDPA devices. VFs have no driver at first.
func setUpHardware(ctx context.Context) error {
	if err := run(ctx, "modprobe", "-a", "igb", "vfio-pci", "vfio_iommu_type1", "vhost_vdpa", "vdpa_sim_net", "vp_vdpa"); err != nil {
		return err
	}
	for card, vfs := range map[string]int{pf0: 4, pf1: 2} {
		if err := createVFs(ctx, card, vfs); err != nil {
			return fmt.Errorf("create VFs of %s: %w", card, err)
		}
	}
	for name, address := range map[string]string{"vpa": virtio0, "vpb": virtio1} {
		if err := bind(address, "vp-vdpa"); err != nil {
			return err
		}
		if err := run(ctx, "vdpa", "dev", "add", "name", name, "mgmtdev", "pci/"+address); err != nil {
			return err
		}
	}
	return run(ctx, "vdpa", "dev", "add", "name", "sim0", "mgmtdev", "vdpasim_net", "mac", "52:54:00:00:05:00")
}

// createVFs brings a card up, because the drivers of its VFs wait for that, and creates VFs without drivers.
func createVFs(ctx context.Context, card string, vfs int) error {
	name, err := netdev(card)
	if err != nil {
		return err
	}
	if err := run(ctx, "/bin/ip", "link", "set", name, "up"); err != nil {
		return err
	}
	err = waitUntil(ctx, "carrier of "+name, func() bool {
		carrier, _ := os.ReadFile("/sys/class/net/" + name + "/carrier")
		return string(carrier) == "1\n"
	})
	if err != nil {
		return err
	}
	if err := writeAttribute(card, "sriov_drivers_autoprobe", "0"); err != nil {
		return err
	}
	if err := writeAttribute(card, "sriov_numvfs", fmt.Sprint(vfs)); err != nil {
		return err
	}
	for i := range vfs {
		// 52:54:00:00:CC:1N, where CC is the card's.
		mac := fmt.Sprintf("52:54:00:00:%s:1%d", card[5:7], i)
		if err := run(ctx, "/bin/ip", "link", "set", name, "vf", fmt.Sprint(i), "mac", mac); err != nil {
			return err
		}
	}
	return nil
}

// netdev returns the network interface of a function.
func netdev(address string) (string, error) {
	found, err := filepath.Glob(pciDevices + address + "/net/*")
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("function %s has %d network interfaces: %w", address, len(found), errors.Join(err, errdefs.ErrNotFound))
	}
	return filepath.Base(found[0]), nil
}

// writeAttribute writes a function's file in sysfs.
func writeAttribute(address, name, value string) error {
	return os.WriteFile(pciDevices+address+"/"+name, []byte(value), 0)
}

// driver returns the driver of a function; "" for none.
func driver(address string) string {
	target, err := os.Readlink(pciDevices + address + "/driver")
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// bind binds a function to a driver; "" for none.
func bind(address, name string) error {
	if old := driver(address); old == name {
		return nil
	} else if old != "" {
		if err := writeAttribute(address, "driver/unbind", address); err != nil {
			return fmt.Errorf("unbind %s from %s: %w", address, old, err)
		}
	}
	override := name
	if name == "" {
		override = "\n"
	}
	if err := writeAttribute(address, "driver_override", override); err != nil {
		return fmt.Errorf("bind %s: %w", address, err)
	}
	if name == "" {
		return nil
	}
	if err := os.WriteFile("/sys/bus/pci/drivers_probe", []byte(address), 0); err != nil {
		return fmt.Errorf("bind %s to %s: %w", address, name, err)
	}
	if got := driver(address); got != name {
		return fmt.Errorf("bind %s to %s: its driver is %q: %w", address, name, got, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// group returns the IOMMU group of a function.
func group(address string) string {
	target, err := os.Readlink(pciDevices + address + "/iommu_group")
	if err != nil {
		return ""
	}
	return filepath.Base(target)
}

// groupNode and cdevNode return the device nodes of a function that is bound to vfio-pci.
func groupNode(address string) string { return "/dev/vfio/" + group(address) }
func cdevNode(address string) string {
	found, _ := filepath.Glob(pciDevices + address + "/vfio-dev/vfio*")
	return "/dev/vfio/devices/" + filepath.Base(strings.Join(found, " "))
}

// vhostNode returns the node of a vDPA device that is bound to vhost_vdpa.
func vhostNode(name string) string {
	found, _ := filepath.Glob("/sys/bus/vdpa/devices/" + name + "/vhost-vdpa-*")
	return "/dev/" + filepath.Base(strings.Join(found, " "))
}

// uverbsNode returns the node of verbs of an RDMA device.
func uverbsNode(name string) string {
	found, _ := filepath.Glob("/sys/class/infiniband/" + name + "/device/infiniband_verbs/uverbs*")
	return "/dev/infiniband/" + filepath.Base(strings.Join(found, " "))
}

// waitUntil waits until f returns true.
func waitUntil(ctx context.Context, condition string, f func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for !f() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", condition, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// setHugePages reserves huge pages of 2 MiB.
func setHugePages(pages int) error {
	return os.WriteFile("/proc/sys/vm/nr_hugepages", []byte(fmt.Sprint(pages)), 0)
}
