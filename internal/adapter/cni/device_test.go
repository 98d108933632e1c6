// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/internal/base/testkit"

	"github.com/jackfield/jackfield/internal/host/sysfstest"
	"github.com/jackfield/jackfield/internal/port/attach"
)

// hardware is a node with a virtual function and vDPA devices below another.
func hardware(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	h, err := sysfstest.New(n.dir)
	testkit.Must(t, err)
	testkit.Must(t, h.AddPCI("0000:03:00.0", "mlx5_core", sysfstest.NoGroup))
	testkit.Must(t, h.AddPCI("0000:03:00.3", "vfio-pci", 42))
	testkit.Must(t, h.AddVF("0000:03:00.3", "0000:03:00.0"))
	testkit.Must(t, h.AddPCI("0000:03:00.4", "mlx5_core", 43))
	testkit.Must(t, h.AddVF("0000:03:00.4", "0000:03:00.0"))
	if err := h.AddVDPA("vdpa0", "vhost_vdpa", "0000:03:00.4", 0, sysfstest.Null()); errors.Is(err, sysfstest.ErrNoMknod) {
		t.Skip("SKIP:", err)
	} else {
		testkit.Must(t, err)
	}
	testkit.Must(t, h.AddVDPA("vdpa1", "virtio_vdpa", "", 1, sysfstest.Null()))
	testkit.Must(t, h.Mkdir("/sys/bus/vdpa/devices/vdpa1/virtio5"))
	return n
}

func TestAddDescribesPCIAndVDPADevices(t *testing.T) {
	n := hardware(t)
	const (
		pci  = `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.3", "pf-pci-address": "0000:03:00.0"}, "jackfield.dev/interface": {"network": "fast"}}`
		vdpa = `{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa0", "driver": "vhost", "path": "/dev/vhost-vdpa-0", "pci-address": "0000:03:00.4",
			"pf-pci-address": "0000:03:00.0"}, "jackfield.dev/interface": {"network": "fast"}}`
		virtio = `{"type": "vdpa", "version": "1.1.0", "vdpa": {"parent-device": "vdpa1", "driver": "virtio", "path": "/sys/bus/virtio/devices/virtio5"},
			"jackfield.dev/interface": {"network": "fast"}}`
	)
	for name, c := range map[string]struct{ keys, want, id string }{
		"runtime":   {`"device": {"type": "pci"}, "runtimeConfig": {"deviceID": "0000:03:00.3"}`, pci, "0000:03:00.3"},
		"pciBusID":  {`"device": {"type": "pci"}, "runtimeConfig": {"pciBusID": "0000:03:00.3"}`, pci, "0000:03:00.3"},
		"Multus":    {`"device": {"type": "pci"}, "deviceID": "0000:03:00.3", "pciBusID": "0000:03:00.3", "runtimeConfig": {"deviceID": "0000:03:00.3"}`, pci, "0000:03:00.3"},
		"by hand":   {`"device": {"type": "pci", "version": "1.1.0", "pci-address": "0000:03:00.3"}`, pci, "0000:03:00.3"},
		"vdpa":      {`"device": {"type": "vdpa", "driver": "vhost"}, "runtimeConfig": {"deviceID": "vdpa0"}`, vdpa, "0000:03:00.4"},
		"vdpa pci":  {`"device": {"type": "vdpa"}, "deviceID": "0000:03:00.4"`, vdpa, "0000:03:00.4"},
		"vdpa name": {`"device": {"type": "vdpa", "parent-device": "vdpa1"}`, virtio, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := n.mustRun(env("ADD"), confOf("1.1.0", c.keys))
			_, content := n.readInfoFile()
			sameJSON(t, content, c.want)
			if strings.Contains(a.out, "pciID") != (c.id != "") || !strings.Contains(a.out, c.id) {
				t.Errorf("the result is %s, want pciID %q", a.out, c.id)
			}
			n.mustRun(env("CHECK"), confOf("1.1.0", c.keys+`, "prevResult": `+a.out))
			n.mustRun(env("DEL"), confOf("1.1.0", c.keys))
			a = n.mustRun(env("ADD"), confOf("1.0.0", c.keys))
			if strings.Contains(a.out, "pciID") {
				t.Errorf("version 1.0.0 has no pciID: %s", a.out)
			}
			n.mustRun(env("DEL"), confOf("1.0.0", c.keys))
		})
	}
	for keys, want := range map[string]struct {
		code uint
		text string
	}{
		`"device": {"type": "pci"}`: {codeConfig, "deviceID"},
		`"device": {"type": "pci"}, "deviceID": "0000:03:00.3", "runtimeConfig": {"deviceID": "0000:03:00.4"}`:    {codeConfig, "0000:03:00.4"},
		`"device": {"type": "pci", "pci-address": "0000:03:00.3"}, "runtimeConfig": {"deviceID": "0000:03:00.4"}`: {codeConfig, "pci-address"},
		`"device": {"type": "pci"}, "deviceID": "0000:09:00.0"`:                                                   {attach.CodeDevice, "0000:09:00.0"},
		`"device": {"type": "pci"}, "deviceID": "a-name"`:                                                         {codeConfig, "a-name"},
		`"device": {"type": "vdpa"}`:                                                                                   {codeConfig, "deviceID"},
		`"device": {"type": "vdpa", "driver": "virtio"}, "deviceID": "vdpa0"`:                                          {codeConfig, "driver"},
		`"device": {"type": "vdpa", "driver": "ifcvf"}`:                                                                {codeConfig, "vhost or virtio"},
		`"device": {"type": "vdpa"}, "deviceID": "vdpa9"`:                                                              {attach.CodeDevice, "vdpa9"},
		`"device": {"type": "vdpa"}, "deviceID": "0000:03:00.3"`:                                                       {attach.CodeDevice, "0000:03:00.3"},
		`"device": {"type": "pci"}, "runtimeConfig": {"deviceID": "0000:03:00.3", "mac": "c2:11:22:33:44:55"}`:         {codeField, `"runtimeConfig.mac": "c2:11:22:33:44:55"`},
		`"device": {"type": "pci"}, "runtimeConfig": {"deviceID": "0000:03:00.3", "bandwidth": {"ingressRate": 2048}}`: {codeField, `"runtimeConfig.bandwidth": {"ingressRate":2048}`},
		`"device": {"type": "pci", "pci-address": "0000:02:01:6"}`:                                                     {codeConfig, "dddd:BB:DD.f"},
	} {
		a := n.run(env("ADD"), confOf("1.1.0", keys))
		if a.code != want.code || !strings.Contains(a.all, want.text) {
			t.Errorf("%s: code %d, %s; want code %d with %q", keys, a.code, a.all, want.code, want.text)
		}
	}
	// A device plugin's own ID means what its file says.
	n.write("/var/run/k8s.cni.cncf.io/devinfo/cni/"+infoName, `{"type": "pci", "version": "1.0.0", "pci": {"pci-address": "0000:03:00.3", "rdma-device": "mlx5_3"}}`)
	n.mustRun(env("ADD"), confOf("1.1.0", `"device": {"type": "pci", "vhost-net": "/dev/vhost-net"}, "runtimeConfig": {"deviceID": "a-name", "CNIDeviceInfoFile": "/var/run/k8s.cni.cncf.io/devinfo/cni/`+infoName+`"}`))
	_, content := n.readInfoFile()
	sameJSON(t, content, `{"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:00.3", "rdma-device": "mlx5_3", "pf-pci-address": "0000:03:00.0", "vhost-net": "/dev/vhost-net"},
		"jackfield.dev/interface": {"network": "fast"}}`)
}
