// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/jackfield/jackfield/internal/base/testkit"
)

func TestCNIPluginReadsWritesAndUpdates(t *testing.T) {
	root := newEmptyNode(t)
	cni := CNIDir{Root: root}
	const file = "ns-nad-x_net1"
	if _, err := cni.Read(file); !errdefs.IsNotFound(err) {
		t.Errorf("before the first write: %v", err)
	}
	testkit.Must(t, cni.Update(file, func(i *Info) (*Info, error) {
		if i != nil {
			t.Errorf("got %+v, want nil", i)
		}
		return nil, nil
	}))
	if _, err := cni.Read(file); !errdefs.IsNotFound(err) {
		t.Errorf("an update to nil wrote a file: %v", err)
	}
	withUmask(0o077, func() { testkit.Must(t, cni.Write(file, pciInfo())) })
	p, err := cni.Path(file)
	testkit.Must(t, err)
	if modeOf(t, filepath.Join(root, p)) != 0o644 || modeOf(t, filepath.Join(root, DefaultCNIDir)) != os.ModeDir|0o755 {
		t.Errorf("modes %v, %v", modeOf(t, filepath.Join(root, p)), modeOf(t, filepath.Join(root, DefaultCNIDir)))
	}
	// Unknown keys of another writer are kept.
	testkit.Must(t, os.WriteFile(filepath.Join(root, p), []byte(`{"type":"pci","version":"1.0.0","pci":{"pci-address":"0000:01:02.2","b":{"y":[1.0]}},"a":"<>"}`), 0o644))
	testkit.Must(t, cni.Update(file, func(i *Info) (*Info, error) {
		i.PCI.RepresentorDevice = "eth3"
		i.Version = Version
		return i, nil
	}))
	got, err := cni.Read(file)
	testkit.Must(t, err)
	want := pciInfo()
	want.PCI.RepresentorDevice = "eth3"
	want.PCI.Extra = map[string]json.RawMessage{"b": json.RawMessage(`{"y":[1.0]}`)}
	want.Extra = map[string]json.RawMessage{"a": json.RawMessage(`"<>"`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	before, err := os.ReadFile(filepath.Join(root, p))
	testkit.Must(t, err)
	boom := errors.New("boom")
	if err := cni.Update(file, func(*Info) (*Info, error) { return nil, boom }); err != boom {
		t.Errorf("error of the update function: %v", err)
	}
	if err := cni.Update(file, func(*Info) (*Info, error) { return &Info{}, nil }); len(diagnosticsOf(t, err)) == 0 {
		t.Errorf("an invalid change: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(root, p)); err != nil || string(after) != string(before) {
		t.Errorf("failed updates changed the file to %s, %v", after, err)
	}
	writeFile(t, filepath.Join(root, DefaultCNIDir), "ns-nad-x_net1", "{")
	if err := cni.Update(file, func(*Info) (*Info, error) { return pciInfo(), nil }); len(diagnosticsOf(t, err)) == 0 {
		t.Errorf("an update of an invalid file: %v", err)
	}
	for range 2 {
		testkit.Must(t, cni.Remove(file))
	}
}

func TestCNIPluginStaysInItsDirectory(t *testing.T) {
	root, _ := newTestNode(t)
	cni := CNIDir{Root: root}
	for _, p := range []string{DefaultCNIDir + "/f", "/run/k8s.cni.cncf.io/devinfo/cni/f"} { // two paths of one directory
		if file, err := cni.Name(p); err != nil || file != "f" {
			t.Errorf("%s: %q, %v", p, file, err)
		}
	}
	for _, p := range []string{"/f", "/etc/passwd", DefaultDPDir + "/f", DefaultCNIDir, DefaultCNIDir + "/sub/f", "/run/f", "/nowhere/f", DefaultCNIDir + "x/f"} {
		if _, err := cni.Name(p); !errdefs.IsPermissionDenied(err) {
			t.Errorf("%s: %v; want permission denied", p, err)
		}
	}
	for _, p := range []string{"", "f", "/", DefaultCNIDir + "/../cni/f", DefaultCNIDir + "//f", DefaultCNIDir + "/", DefaultCNIDir + "/.f",
		DefaultCNIDir + "/..", DefaultCNIDir + "/f\x00"} {
		if _, err := cni.Name(p); !errdefs.IsInvalidArgument(err) && !errdefs.IsPermissionDenied(err) {
			t.Errorf("%q: %v; want invalid argument or permission denied", p, err)
		}
	}
	if err := cni.Write("", pciInfo()); !errdefs.IsInvalidArgument(err) {
		t.Errorf("no name: %v", err)
	}
	// The same holds before the directory exists.
	empty := CNIDir{Root: newEmptyNode(t)}
	if _, err := empty.Name("/etc/f"); !errdefs.IsPermissionDenied(err) {
		t.Errorf("outside of a directory that does not exist yet: %v", err)
	}
	testkit.Must(t, os.MkdirAll(filepath.Join(empty.Root, "run"), 0o755))
	testkit.Must(t, os.MkdirAll(filepath.Join(empty.Root, "var"), 0o755))
	testkit.Must(t, os.Symlink("/run", filepath.Join(empty.Root, "var/run")))
	if file, err := empty.Name("/run/k8s.cni.cncf.io/devinfo/cni/f"); err != nil || file != "f" {
		t.Errorf("under another path of a directory that does not exist yet: %q, %v", file, err)
	}
}
