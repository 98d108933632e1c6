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

func TestNPWGCopiesTheDevicePluginFile(t *testing.T) {
	root := newEmptyNode(t)
	dp, cni := DevicePluginDir{Root: root}, CNIDir{Root: root}
	name, err := CNIFileName("ns", "nad", testID, "net1")
	testkit.Must(t, err)
	if _, _, err := cni.CopyFrom(dp, "r", "1", name); !errdefs.IsNotFound(err) {
		t.Errorf("without a device plugin's file: %v", err)
	}
	_, err = dp.Save("r", "1", pciInfo())
	testkit.Must(t, err)
	dpFile, _ := dp.Path("r", "1")
	odd := "\n" + strings.Replace(infoText("pci", pciMap), "{", `{ "later" : [ 1 ],`, 1) + "\n\n"
	testkit.Must(t, os.WriteFile(filepath.Join(root, dpFile), []byte(odd), 0o600))
	got, file, err := cni.CopyFrom(dp, "r", "1", name)
	testkit.Must(t, err)
	if file != DefaultCNIDir+"/"+name || got.Type != TypePCI {
		t.Errorf("copied %+v to %q", got, file)
	}
	if b, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(b) != odd {
		t.Errorf("the copy is %q, %v", b, err)
	}
	if m := modeOf(t, filepath.Join(root, file)); m != 0o644 {
		t.Errorf("the copy has mode %v", m)
	}
	es, err := CNIDir{Root: root}.ReadSandbox(testID)
	if err != nil || len(es) != 1 || es[0].IfName != "net1" || es[0].Err != nil {
		t.Errorf("ReadSandbox = %+v, %v", es, err)
	}
	if es, err := cni.List(); err != nil || len(es) != 1 || es[0].File != file {
		t.Errorf("List = %+v, %v", es, err)
	}
	testkit.Must(t, os.WriteFile(filepath.Join(root, dpFile), []byte("{"), 0o600))
	if _, _, err := cni.CopyFrom(dp, "r", "1", name); len(diagnosticsOf(t, err)) == 0 {
		t.Errorf("an invalid file: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(root, file)); err != nil || string(b) != odd {
		t.Errorf("the copy after a failure is %q, %v", b, err)
	}
}

func TestNPWGRemovesAtDEL(t *testing.T) {
	root := newEmptyNode(t)
	cni := CNIDir{Root: root}
	testkit.Must(t, cni.Remove("f")) // without the directory
	if got, err := cni.RemoveSandbox(testID); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	for _, name := range []string{"n-" + testID + "_net2", "n-" + testID + "_net1", "n-other_net1"} {
		testkit.Must(t, cni.Write(name, pciInfo()))
	}
	for range 2 {
		testkit.Must(t, cni.Remove("n-other_net1"))
	}
	got, err := cni.RemoveSandbox(testID)
	testkit.Must(t, err)
	if diff := cmp.Diff([]string{DefaultCNIDir + "/n-" + testID + "_net1", DefaultCNIDir + "/n-" + testID + "_net2"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if es, err := cni.List(); err != nil || len(es) != 0 {
		t.Errorf("left: %v, %v", es, err)
	}
	for _, name := range []string{"", ".", "..", "../dp/x", "a\x00b", lockName} {
		if err := cni.Remove(name); !errdefs.IsInvalidArgument(err) {
			t.Errorf("Remove(%q) = %v; want invalid argument", name, err)
		}
	}
}

func TestCapability(t *testing.T) {
	const file = DefaultCNIDir + `/ns-"nad"-x_net1`
	conf := `{"runtimeConfig":{"CNIDeviceInfoFile":"/var/run/k8s.cni.cncf.io/devinfo/cni/ns-\"nad\"-x_net1","mac":"x"}}`
	if path, ok, err := CapabilityPath([]byte(conf)); path != file || !ok || err != nil {
		t.Errorf("CapabilityPath = %q, %v, %v", path, ok, err)
	}
	if path, ok, err := CapabilityPath([]byte(`{"capabilities":1,"plugins":1,"runtimeConfig":{"CNIDeviceInfoFile":"/x"}}`)); path != "/x" || !ok || err != nil {
		t.Errorf("beside keys of the plugin: %q, %v, %v", path, ok, err)
	}
	if path, ok, err := CapabilityPath([]byte(`{"runtimeConfig":{"mac":"x"}}`)); path != "" || ok || err != nil {
		t.Errorf("without the argument: %q, %v, %v", path, ok, err)
	}
	for _, conf := range []string{`{`, `[]`, `{"runtimeConfig":1}`, `{"runtimeConfig":{"CNIDeviceInfoFile":1}}`, `{"runtimeConfig":{"CNIDeviceInfoFile":""}}`, `{"runtimeConfig":{"CNIDeviceInfoFile":null}}`} {
		if _, _, err := CapabilityPath([]byte(conf)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("CapabilityPath(%s): %v; want invalid argument", conf, err)
		}
	}
}
