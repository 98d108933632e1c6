// SPDX-License-Identifier: Apache-2.0

package deviceinfo_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
	"github.com/jackfield/jackfield/pkg/hostfs"
)

// A tree in place of the host's own root, which is hostfs.Root{}.
func fixture() (hostfs.Root, func()) {
	dir, err := os.MkdirTemp("", "deviceinfo")
	if err != nil {
		log.Fatal(err)
	}
	root, err := hostfs.New(dir)
	if err != nil {
		log.Fatal(err)
	}
	return root, func() { os.RemoveAll(dir) }
}

func ExampleParse() {
	_, err := deviceinfo.Parse([]byte(`{
    "type": "pci",
    "version": "1.1.0",
    "pci": {
        "pci-address": "0000:02:01:6"
        “pf-pci-address”: "0000:02:01.0"
    }
}`), "dp.json")
	var findings deviceinfo.Diagnostics
	if errors.As(err, &findings) {
		for _, f := range findings {
			fmt.Printf("line %d, column %d, %s: %s\n", f.Line, f.Column, f.Key, f.Found)
		}
	}
	// Output:
	// line 5, column 24, pci.pci-address: "0000:02:01:6"
	// line 5, column 38, pci.pci-address: “pf-pci-address” after the value
	// line 6, column 9, pci.pf-pci-address: “pf-pci-address”
}

// A device plugin writes what it allocates, an NPWG implementation copies it for
// the CNI plugins, one of them adds to it, and it ends up in network-status.
func Example_roles() {
	root, remove := fixture()
	defer remove()

	// Device plugin.
	plugin := &deviceinfo.DevicePlugin{Dir: deviceinfo.DevicePluginDir{Root: root}}
	file, err := plugin.Save("intel.com/vf", "0000:01:02.2", &deviceinfo.Info{
		Type:    deviceinfo.TypePCI,
		Version: deviceinfo.Version,
		PCI:     &deviceinfo.PCI{PCIAddress: "0000:01:02.2"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(file)
	defer plugin.Stop()

	// NPWG implementation, before CNI ADD.
	cni := deviceinfo.CNIDir{Root: root}
	name, err := deviceinfo.CNIFileName("ns", "nad", "e06166", "net1")
	if err != nil {
		log.Fatal(err)
	}
	_, path, err := cni.CopyFrom(plugin.Dir, "intel.com/vf", "0000:01:02.2", name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(deviceinfo.CapabilityArgs(path))

	// CNI plugin.
	given, err := cni.File(path)
	if err != nil {
		log.Fatal(err)
	}
	err = given.Update(func(info *deviceinfo.Info) (*deviceinfo.Info, error) {
		info.PCI.RepresentorDevice = "eth3"
		return info, nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// NPWG implementation, after CNI ADD.
	status := deviceinfo.NetworkStatus{Name: "ns/nad", Interface: "net1"}
	if err := status.Collect(cni, name); err != nil {
		log.Fatal(err)
	}
	out, err := status.MarshalJSON()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(out))

	// And at CNI DEL.
	if err := cni.Remove(name); err != nil {
		log.Fatal(err)
	}
	// Output:
	// /var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-vf-0000:01:02.2-device.json
	// map[CNIDeviceInfoFile:/var/run/k8s.cni.cncf.io/devinfo/cni/ns-nad-e06166_net1]
	// {"name":"ns/nad","interface":"net1","device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:02.2","representor-device":"eth3"}}}
}

func ExampleIndex() {
	root, remove := fixture()
	defer remove()
	index, err := deviceinfo.NewIndex(root, deviceinfo.DefaultCNIDir, deviceinfo.IndexOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer index.Close()

	f, err := deviceinfo.CNIDir{Root: root}.File(deviceinfo.DefaultCNIDir + "/ns-nad-e06166_net1")
	if err != nil {
		log.Fatal(err)
	}
	err = f.Write(&deviceinfo.Info{
		Type:    deviceinfo.TypeMemif,
		Version: deviceinfo.Version,
		Memif:   &deviceinfo.Memif{Role: deviceinfo.MemifSlave, Path: "/run/vpp/memif.sock", Mode: deviceinfo.MemifEthernet},
	})
	if err != nil {
		log.Fatal(err)
	}
	entries, err := index.Lookup("e06166")
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Println(e.Network, e.IfName, e.Info.Memif.Path, e.Err)
	}
	// Output:
	// ns-nad net1 /run/vpp/memif.sock <nil>
}
