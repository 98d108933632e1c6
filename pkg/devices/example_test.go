// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"fmt"

	"github.com/jackfield/jackfield/pkg/devices"
)

func ExampleParse() {
	list, err := devices.Parse([]byte(`[{"name": "blue/fast", "interface": "net1",
		"device-info": {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.1"}},
		"jackfield": {"eal": ["-a", "0000:03:00.1"]}}]`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(devices.Find(list, "net1").PCIAddress(), devices.EAL(list))
	// Output: 0000:03:00.1 [-a 0000:03:00.1]
}
