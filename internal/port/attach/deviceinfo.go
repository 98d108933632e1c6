// SPDX-License-Identifier: Apache-2.0

package attach

import (
	"cmp"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/diag"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/sysfs"
	"github.com/jackfield/jackfield/internal/source/attachment"
	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

// An attachment's device can be named by the configuration, the runtime, Multus, the device
// plugin's device-info and the kernel. The functions below merge these sources, and report an error
// instead of choosing between two that contradict each other.
//
// deviceID returns the device ID on which the runtime, Multus and the configuration agree.
func (a *addition) deviceID() (id string, err error) {
	from := ""
	for _, key := range slices.Sorted(maps.Keys(a.DeviceIDs)) {
		switch next := a.DeviceIDs[key]; {
		case id == "":
			id, from = next, key
		case !strings.EqualFold(id, next):
			return "", a.Invalid(key, diag.Quote(next), `the device in `+from+`, `+diag.Quote(id))
		}
	}
	return id, nil
}

// deviceIDRemedy begins the remedy for a missing device ID. Its reader is often the author of a
// pod.
const deviceIDRemedy = "request the resource of the network in resources.limits of a container, and name that " +
	"resource in annotation " +
	"k8s.v1.cni.cncf.io/resourceName of the NetworkAttachmentDefinition. Outside Kubernetes set "

// agreedValue returns the value of a device key on which all sources that set it agree.
func (a *addition) agreedValue(key string, sources ...string) (string, error) {
	found := ""
	for _, s := range sources {
		if found != "" && s != "" && !strings.EqualFold(found, s) {
			return "", a.Invalid("device."+key, diag.Quote(found), diag.Quote(s)+`, the value in another source`)
		}
		found = cmp.Or(found, s)
	}
	return found, nil
}

// describePCI describes a PCI device from four sources: the configuration, the device's ID, the
// device plugin's device-info in p, and the kernel.
func (a *addition) describePCI(p *deviceinfo.PCI) error {
	id, err := a.deviceID()
	if err != nil {
		return err
	}
	if id != "" {
		if _, err := sysfs.ParseAddress(id); err != nil {
			if p.PCIAddress == "" && a.Device.Field["pci-address"] == "" {
				return a.Invalid("deviceID", diag.Quote(id),
					"a PCI address, dddd:BB:DD.f, or a device-info file of the device plugin with the address")
			}
			id = "" // a name that only the device plugin understands
		}
	}
	address, err := a.agreedValue("pci-address", a.Device.Field["pci-address"], id, p.PCIAddress)
	if err != nil {
		return err
	}
	if address == "" {
		return a.Invalid("deviceID", "nothing", "the PCI device: "+deviceIDRemedy+"deviceID or device.pci-address")
	}
	dev, err := sysfs.PCI(a.Root, address)
	if err != nil {
		return deviceError(address, err)
	}
	p.PCIAddress = dev.Address
	p.VhostNet = cmp.Or(a.Device.Field["vhost-net"], p.VhostNet)
	p.RDMADevice = cmp.Or(a.Device.Field["rdma-device"], p.RDMADevice)
	p.PFPCIAddress = cmp.Or(a.Device.Field["pf-pci-address"], dev.Physical, p.PFPCIAddress)
	p.RepresentorDevice = cmp.Or(a.Device.Field["representor-device"], p.RepresentorDevice)
	return nil
}

// describeVDPA describes a vDPA device from the same sources.
func (a *addition) describeVDPA(v *deviceinfo.VDPA) error {
	id, err := a.deviceID()
	if err != nil {
		return err
	}
	address, name := "", id
	if a, err := sysfs.ParseAddress(id); err == nil {
		address, name = a, ""
	}
	name, err = a.agreedValue("parent-device", a.Device.Field["parent-device"], v.ParentDevice, name)
	if err != nil {
		return err
	}
	if address, err = a.agreedValue("pci-address", a.Device.Field["pci-address"], v.PCIAddress, address); err != nil {
		return err
	}
	if name == "" && address == "" {
		return a.Invalid("deviceID", "nothing", "the vDPA device or its PCI function: "+deviceIDRemedy+
			"deviceID or device.parent-device")
	}
	dev, err := findVDPA(a.Root, name, address)
	if err != nil {
		return err
	}
	if _, err := a.agreedValue("driver", a.Device.Field["driver"], dev.Driver); err != nil {
		return err
	}
	if _, err := a.agreedValue("pci-address", address, dev.Address); err != nil {
		return err
	}
	v.ParentDevice, v.Driver, v.PCIAddress = dev.Name, deviceinfo.VDPADriver(dev.Driver), dev.Address
	if len(dev.Nodes) > 0 {
		v.Path = dev.Nodes[0].Path
	} else if virtio := virtioDir(a.Root, dev.Dir); virtio != "" {
		v.Path = virtio
	}
	if _, err := a.agreedValue("path", a.Device.Field["path"], v.Path); err != nil {
		return err
	}
	if v.PCIAddress != "" && v.PFPCIAddress == "" {
		if pci, err := sysfs.PCI(a.Root, v.PCIAddress); err == nil {
			v.PFPCIAddress = pci.Physical
		}
	}
	v.PFPCIAddress = cmp.Or(a.Device.Field["pf-pci-address"], v.PFPCIAddress)
	v.RepresentorDevice = cmp.Or(a.Device.Field["representor-device"], v.RepresentorDevice)
	return nil
}

const (
	vdpaDir  = "/sys/bus/vdpa/devices"
	maxNames = 4096
)

// findVDPA reads a vDPA device by its name or its PCI function.
func findVDPA(host hostfs.Root, name, address string) (sysfs.VDPADevice, error) {
	if name != "" {
		dev, err := sysfs.VDPA(host, name)
		return dev, deviceError(name, err)
	}
	names, err := host.ReadDir(vdpaDir, maxNames)
	if err != nil && !errdefs.IsNotFound(err) {
		return sysfs.VDPADevice{}, deviceError(address, err)
	}
	var found []sysfs.VDPADevice
	for _, n := range names {
		if dev, err := sysfs.VDPA(host, n); err == nil && dev.Address == address {
			found = append(found, dev)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return sysfs.VDPADevice{}, Fail(CodeDevice, "device "+address+" cannot be used",
			"no device in %s with a driver belongs to PCI function %s: add one with the vdpa command", vdpaDir, address)
	}
	return sysfs.VDPADevice{}, Fail(CodeDevice, "device "+address+" cannot be used",
		"%d vDPA devices belong to PCI function %s: choose one with device.parent-device", len(found), address)
}

// virtioDir returns the virtio bus device of a vDPA device that is bound to the virtio driver, or
// "".
func virtioDir(host hostfs.Root, dir string) string {
	names, _ := host.ReadDir(dir, maxNames)
	for _, n := range names {
		if strings.HasPrefix(n, "virtio") {
			return path.Join("/sys/bus/virtio/devices", n)
		}
	}
	return ""
}

func deviceError(id string, err error) error {
	if err == nil {
		return nil
	}
	return Fail(CodeDevice, "device "+diag.Excerpt(id, diag.MaxExcerpt)+" cannot be used", "%v", err)
}

// setInterfaceInfo writes n into the device-info under its own key.
func setInterfaceInfo(info *deviceinfo.Info, n attachment.InterfaceInfo) error {
	raw, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if info.Extra == nil {
		info.Extra = map[string]json.RawMessage{}
	}
	delete(info.Extra, attachment.InterfaceInfoKey)
	if string(raw) != "{}" {
		info.Extra[attachment.InterfaceInfoKey] = raw
	}
	return nil
}

// deviceInfo returns the device-info of the attachment, without the interface's information. If the
// runtime has copied the device plugin's device-info, deviceInfo completes that copy. The copy has
// the same type.
func (a *addition) deviceInfo() (*deviceinfo.Info, error) {
	d := &a.Device
	info := cmp.Or(a.before.Clone(), &deviceinfo.Info{Type: d.Kind})
	info.Version = deviceinfo.Version
	switch d.Kind {
	case deviceinfo.TypePCI:
		info.PCI = cmp.Or(info.PCI, &deviceinfo.PCI{})
		return info, a.describePCI(info.PCI)
	case deviceinfo.TypeVDPA:
		info.VDPA = cmp.Or(info.VDPA, &deviceinfo.VDPA{})
		return info, a.describeVDPA(info.VDPA)
	case deviceinfo.TypeVhostUser:
		info.VhostUser = cmp.Or(info.VhostUser, &deviceinfo.VhostUser{})
		info.VhostUser.Mode = deviceinfo.VhostUserMode(d.Field["mode"])
	case deviceinfo.TypeMemif:
		info.Memif = cmp.Or(info.Memif, &deviceinfo.Memif{})
		info.Memif.Role, info.Memif.Mode = deviceinfo.MemifRole(d.Field["role"]), deviceinfo.MemifMode(d.Field["mode"])
	}
	setSocket(info, a.socket)
	if err := info.Validate(); err != nil {
		return nil, Fail(codeConfig, "invalid network configuration: device", "%v", err)
	}
	return info, nil
}

// identityFields returns the fields of a device-info that identify the device, keyed by the
// configuration's names.
func identityFields(info *deviceinfo.Info) map[string]string {
	switch {
	case info == nil:
		return nil
	case info.Type == deviceinfo.TypeVhostUser:
		return map[string]string{"type": string(info.Type), "mode": string(info.VhostUser.Mode),
			"path": info.VhostUser.Path}
	case info.Type == deviceinfo.TypeMemif:
		return map[string]string{"type": string(info.Type), "role": string(info.Memif.Role), "path": info.Memif.Path,
			"mode": string(info.Memif.Mode)}
	case info.Type == deviceinfo.TypeVDPA:
		return map[string]string{"type": string(info.Type), "parent-device": info.VDPA.ParentDevice,
			"driver": string(info.VDPA.Driver)}
	}
	return map[string]string{"type": string(info.Type), "pci-address": info.PCI.PCIAddress}
}

// SocketPath returns the path of the socket in a device-info. It is "" for a PCI or vDPA device,
// and for nil.
func SocketPath(info *deviceinfo.Info) string { return identityFields(info)["path"] }

// setSocket sets the path in the device-info of a socket.
func setSocket(i *deviceinfo.Info, socket string) {
	switch i.Type {
	case deviceinfo.TypeVhostUser:
		i.VhostUser.Path = socket
	case deviceinfo.TypeMemif:
		i.Memif.Path = socket
	}
}
