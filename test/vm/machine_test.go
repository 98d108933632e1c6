// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os"
	"testing"
)

// The machine has the devices that the other tests need.
func TestMachineHasDevices(t *testing.T) {
	Require(t)
	groups := map[string]string{}
	for _, address := range []string{vf0, vf1, vf2, vf3, otherVF} {
		if other, taken := groups[group(address)]; taken || group(address) == "" {
			t.Errorf("%s is in IOMMU group %q, like %q", address, group(address), other)
		}
		groups[group(address)] = address
	}
	if group(shared0) == "" || group(shared0) != group(shared1) {
		t.Errorf("%s and %s are in the IOMMU groups %q and %q", shared0, shared1, group(shared0), group(shared1))
	}
	if err := bind(vf0, "vfio-pci"); err != nil {
		t.Fatal(err)
	}
	for _, node := range []string{"/dev/vfio/vfio", "/dev/iommu", groupNode(vf0), cdevNode(vf0), vhostNode("vpa"), vhostNode("vpb"), vhostNode("sim0")} {
		if fi, err := os.Stat(node); err != nil || fi.Mode()&os.ModeCharDevice == 0 {
			t.Errorf("%s: %v", node, err)
		}
	}
}
