// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func TestDevicePluginWritesReadsAndRemoves(t *testing.T) {
	root := newEmptyNode(t)
	dp := DevicePluginDir{Root: root}
	if _, err := dp.Load("intel.com/vf", "0000:01:02.2"); !errdefs.IsNotFound(err) {
		t.Errorf("before the directory exists: %v", err)
	}
	testkit.Must(t, dp.Remove("intel.com/vf", "0000:01:02.2"))
	if es, err := dp.List(""); err != nil || es != nil {
		t.Errorf("before the directory exists: %v, %v", es, err)
	}
	var file string
	withUmask(0o077, func() {
		var err error
		file, err = dp.Save("intel.com/vf", "0000:01:02.2", pciInfo())
		testkit.Must(t, err)
	})
	if want := "/var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-vf-0000:01:02.2-device.json"; file != want {
		t.Errorf("Save wrote %q, want %q", file, want)
	}
	for _, p := range []string{"/var", "/var/run", "/var/run/k8s.cni.cncf.io", "/var/run/k8s.cni.cncf.io/devinfo", DefaultDPDir} {
		if m := modeOf(t, filepath.Join(root, p)); m != os.ModeDir|0o755 {
			t.Errorf("%s has mode %v, want 0755", p, m)
		}
	}
	if m := modeOf(t, filepath.Join(root, file)); m != 0o644 {
		t.Errorf("the file has mode %v, want 0644", m)
	}
	got, err := dp.Load("intel.com/vf", "0000:01:02.2")
	testkit.Must(t, err)
	if diff := cmp.Diff(pciInfo(), got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	_, err = dp.Save("other", "1", pciInfo())
	testkit.Must(t, err)
	writeFile(t, filepath.Join(root, DefaultDPDir), "intel.com-vf-bad-device.json", "{")
	writeFile(t, filepath.Join(root, DefaultDPDir), "README", "not a device's file")
	es, err := dp.List("intel.com/vf")
	testkit.Must(t, err)
	if len(es) != 2 || es[0].File != file || es[0].Err != nil || es[1].Err == nil {
		t.Errorf("List = %+v", es)
	}
	if es, err = dp.List(""); err != nil || len(es) != 3 {
		t.Errorf("List of all = %+v, %v", es, err)
	}
	for range 2 {
		testkit.Must(t, dp.Remove("intel.com/vf", "0000:01:02.2"))
	}
	want := []string{"README", "intel.com-vf-bad-device.json", "other-1-device.json"}
	if diff := cmp.Diff(want, listNames(t, filepath.Join(root, DefaultDPDir))); diff != "" {
		t.Errorf("left in the directory -want +got:\n%s", diff)
	}
}

func TestDevicePluginWritesNothingInvalid(t *testing.T) {
	root := newEmptyNode(t)
	dp := DevicePluginDir{Root: root}
	vdpa := &Info{Type: TypeVDPA, Version: Version, VDPA: &VDPA{ParentDevice: "vdpa0", Driver: VDPAVirtio}}
	for _, i := range []*Info{nil, {}, {Type: TypePCI, Version: Version, PCI: &PCI{PCIAddress: "x"}}, vdpa} {
		if _, err := dp.Save("r", "1", i); len(diagnosticsOf(t, err)) == 0 || !strings.Contains(err.Error(), "r-1-device.json") {
			t.Errorf("%+v: %v", i, err)
		}
	}
	if _, err := dp.Save("../../etc/x", "1", pciInfo()); err == nil {
		t.Error("a resource that leads out of the directory was accepted")
	}
	if got := listNames(t, root); len(got) != 0 {
		t.Errorf("left on the host: %v", got)
	}
}
