// SPDX-License-Identifier: Apache-2.0

package deviceinfo_test

import (
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// newRoot returns a temporary directory in place of the host's root, for which programs
// use "", and a function that removes it.
func newRoot() (string, func()) {
	dir, err := os.MkdirTemp("", "deviceinfo")
	if err != nil {
		log.Fatal(err)
	}
	return dir, func() { os.RemoveAll(dir) }
}

func ExampleParse() {
	_, err := deviceinfo.Parse([]byte(`{
    "type": "pci",
    "version": "1.1.0",
    "pci": {
        "pci-address": "0000:02:01:6",
        "PF-pci-address": "0000:02:01.0"
    }
}`), "dp.json")
	var faults deviceinfo.FieldErrors
	if errors.As(err, &faults) {
		for _, d := range faults {
			fmt.Printf("line %d, column %d, %s: found %s: %s\n", d.Line, d.Column, d.Field, d.Found, d.Rule)
		}
	}
	// Output:
	// line 5, column 24, pci.pci-address: found "0000:02:01:6": must be a PCI address dddd:BB:DD.f such as 0000:02:01.6
	// line 6, column 9, pci.PF-pci-address: found "PF-pci-address": must be the key "pf-pci-address"
}

// A device plugin writes a file for each device that it advertises or allocates, and removes the file before it stops.
func ExampleDevicePluginDir() {
	root, remove := newRoot()
	defer remove()

	dir := deviceinfo.DevicePluginDir{Root: root}
	file, err := dir.Save("intel.com/vf", "0000:01:02.2", &deviceinfo.Info{
		Type:    deviceinfo.TypePCI,
		Version: deviceinfo.Version,
		PCI:     &deviceinfo.PCI{PCIAddress: "0000:01:02.2"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(file)
	if err := dir.Remove("intel.com/vf", "0000:01:02.2"); err != nil {
		log.Fatal(err)
	}
	// Output:
	// /var/run/k8s.cni.cncf.io/devinfo/dp/intel.com-vf-0000:01:02.2-device.json
}

// An NPWG implementation such as Multus copies the device plugin's file for the CNI
// plugins, passes them its path, and reports the result in network-status.
func ExampleCNIDir() {
	root, remove := newRoot()
	defer remove()
	devices := deviceinfo.DevicePluginDir{Root: root}
	_, err := devices.Save("intel.com/vf", "0000:01:02.2", &deviceinfo.Info{
		Type:    deviceinfo.TypePCI,
		Version: deviceinfo.Version,
		PCI:     &deviceinfo.PCI{PCIAddress: "0000:01:02.2"},
	})
	if err != nil {
		log.Fatal(err)
	}

	// Before CNI ADD. The kubelet allocated the device to the pod.
	networks := deviceinfo.CNIDir{Root: root}
	name, err := deviceinfo.CNIFileName("ns", "nad", "e06166", "net1")
	if err != nil {
		log.Fatal(err)
	}
	_, path, err := networks.CopyFrom(devices, "intel.com/vf", "0000:01:02.2", name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(map[string]any{deviceinfo.CapabilityKey: path}) // RuntimeConf.CapabilityArgs of libcni

	// After CNI ADD.
	info, err := networks.Read(name)
	if err != nil {
		log.Fatal(err)
	}
	status := deviceinfo.NetworkStatus{Name: "ns/nad", Interface: "net1", DeviceInfo: info}
	out, err := status.MarshalJSON()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(out))

	// At CNI DEL.
	if err := networks.Remove(name); err != nil {
		log.Fatal(err)
	}
	// Output:
	// map[CNIDeviceInfoFile:/var/run/k8s.cni.cncf.io/devinfo/cni/ns-nad-e06166_net1]
	// {"name":"ns/nad","interface":"net1","device-info":{"type":"pci","version":"1.1.0","pci":{"pci-address":"0000:01:02.2"}}}
}

// A CNI plugin finds the path of its file in the configuration on its standard input, and
// writes or completes the file.
func ExampleCapabilityPath() {
	root, remove := newRoot()
	defer remove()
	stdin := []byte(`{
    "cniVersion": "1.1.0",
    "name": "nad",
    "type": "my-plugin",
    "runtimeConfig": {"CNIDeviceInfoFile": "/var/run/k8s.cni.cncf.io/devinfo/cni/ns-nad-e06166_net1"}
}`)
	path, ok, err := deviceinfo.CapabilityPath(stdin)
	if err != nil {
		log.Fatal(err)
	}
	if !ok {
		return // nothing reads device-info of this network
	}
	dir := deviceinfo.CNIDir{Root: root}
	name, err := dir.Name(path)
	if err != nil {
		log.Fatal(err)
	}
	err = dir.Update(name, func(current *deviceinfo.Info) (*deviceinfo.Info, error) {
		if current == nil { // there was no device to allocate
			current = &deviceinfo.Info{
				Type:      deviceinfo.TypeVhostUser,
				Version:   deviceinfo.Version,
				VhostUser: &deviceinfo.VhostUser{Mode: deviceinfo.VhostUserClient, Path: "/run/vswitch/port1.sock"},
			}
		}
		return current, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	info, err := dir.Read(name)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(info.Type, info.VhostUser.Path)
	// Output:
	// vhost-user /run/vswitch/port1.sock
}
