// SPDX-License-Identifier: Apache-2.0

package sysfs_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/host/sysfstest"
)

func TestGroupPeers(t *testing.T) {
	tree, err := sysfstest.New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(
		tree.AddPCI("0000:06:01.0", "vfio-pci", 13),
		tree.AddPCI("0000:06:02.0", "vfio-pci", 13),
		tree.AddPCI("0000:06:03.0", "e1000", 13),
		tree.AddPCI("0000:06:04.0", "", 13),
		tree.AddPCI("0000:06:00.0", "pcieport", 13),
		tree.WriteFile(filepath.Join("/sys/bus/pci/devices/0000:06:00.0", "class"), "0x060400\n"),
		tree.AddPCI("0000:07:00.0", "vfio-pci", 14),
		tree.AddPCI("0000:08:00.0", "vfio-pci", sysfstest.NoGroup))
	if err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string][]sysfs.GroupPeer{
		"0000:06:01.0": {{Address: "0000:06:02.0", Driver: "vfio-pci"}, {Address: "0000:06:03.0", Driver: "e1000", BlocksVFIO: true}, {Address: "0000:06:04.0"}},
		"0000:07:00.0": nil,
		"0000:08:00.0": nil,
	} {
		_, got, err := sysfs.GroupPeers(tree.Root(), address)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", address, got, err, want)
		}
	}
}
