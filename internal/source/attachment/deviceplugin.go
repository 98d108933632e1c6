// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	// maxPluginFiles bounds the number of device plugin files that one call reads.
	maxPluginFiles = 256
	// maxPluginNames bounds the number of names in their directory.
	maxPluginNames = 1 << 16
	pluginSuffix   = "-device.json"
)

// pluginFile is the device plugin's file of one device (Device Information Specification, §4.1). If
// the file is missing, both info and err are unset.
type pluginFile struct {
	path string
	info *deviceinfo.Info
	err  error
}

// deviceFiles reads the files that describe a pod's devices, each of them once.
type deviceFiles struct {
	*Finder
	q       *Query
	plugins map[[2]string]pluginFile // by resource and device ID
	claims  map[claimKey]claimFiles
}

// readPlugin reads the device plugin's file of a device and caches it.
func (f *deviceFiles) readPlugin(resource, id string) pluginFile {
	key := [2]string{resource, id}
	if p, ok := f.plugins[key]; ok || len(f.plugins) >= maxPluginFiles {
		return p
	}
	var p pluginFile
	if p.path, p.err = f.dp.Path(resource, id); p.err == nil {
		p.info, p.err = f.dp.Load(resource, id)
	}
	if errdefs.IsNotFound(p.err) {
		p.err = nil
	}
	f.q.reportUnread(p.err)
	f.plugins[key] = p
	return p
}

// describeAllocated describes an allocated device by the device plugin's file. Without a file, an
// ID that is an address describes a PCI function. Otherwise ok is false.
func (f *deviceFiles) describeAllocated(resource, id string) (a Attachment, ok bool) {
	a = Attachment{Resource: resource, DeviceID: id, Owner: OwnerUnknown}
	var p pluginFile
	if resource != "" {
		p = f.readPlugin(resource, id)
	}
	switch {
	case p.err != nil:
		a.File, a.Err = p.path, p.err
		return a, true
	case p.info != nil:
		a.File, a.Info = p.path, p.info.Clone()
		for _, w := range a.Info.Warnings {
			a.Notes = append(a.Notes, w.Error())
		}
		if d, isDevice := deviceOf(a.Info); isDevice && d.contradictsID(id) {
			a.reject(&ConflictError{On: deviceQuestion(&a), First: Claim{p.path, d.String()},
				Second: Claim{"its device ID", "PCI device " + canonicalID(id)},
				Hint:   "restart the device plugin, so that it writes the file again"})
		}
		return a, true
	case isPCIAddress(id):
		a.Info = &deviceinfo.Info{Type: deviceinfo.TypePCI, Version: deviceinfo.Version,
			PCI: &deviceinfo.PCI{PCIAddress: canonicalID(id)}}
		a.Notes = append(a.Notes, "the device has no device-info; its ID is a PCI address")
		return a, true
	}
	return a, false
}

// resourceOf returns the resource of an environment variable, or "". If the kubelet lists the pod,
// it is the allocated resource. Otherwise it comes from the name of a device plugin's file for one
// of the variable's devices.
func (o *owners) resourceOf(v variable) string {
	if o.kubelet.answer != nil && o.kubelet.answer.answered {
		for _, r := range o.kubelet.answer.container.Resources {
			if envKey(r.Name) == v.key {
				return r.Name
			}
		}
		return ""
	}
	for _, a := range o.attached {
		if a.Resource != "" && envKey(a.Resource) == v.key {
			return a.Resource
		}
	}
	if !o.listed {
		o.listed = true
		var err error
		if o.names, err = o.host.ReadDir(cmp.Or(o.opts.DPDir, deviceinfo.DefaultDPDir), maxPluginNames); err != nil &&
			!errdefs.IsNotFound(err) {
			o.q.reportUnread(err)
		}
	}
	if _, known := o.resources[v.key]; !known {
		o.resources[v.key] = v.resourceIn(o.names)
	}
	return o.resources[v.key]
}

// resourceIn returns the resource of the first device plugin file that belongs to the variable's
// resource and to one of its devices, or "".
func (v *variable) resourceIn(names []string) string {
	ids := make(map[string]bool, len(v.ids))
	for _, id := range v.ids {
		ids[dashed(id)] = true
	}
	for _, name := range names {
		// A resource and the key of its variable have the same length.
		n := len(v.key)
		if len(name) <= n || name[n] != '-' {
			continue
		}
		id, ok := strings.CutSuffix(name[n+1:], pluginSuffix)
		if !ok || !ids[id] {
			continue
		}
		if resource := undashed(name[:n], v.key); resource != "" {
			return resource
		}
	}
	return ""
}

// undashed restores the "/" in the resource of a file's name, which has "-" instead. It returns ""
// if no position of the "/" matches the variable's key.
func undashed(resource, key string) string {
	for i := range len(resource) {
		if resource[i] != '-' {
			continue
		}
		if slashed := resource[:i] + "/" + resource[i+1:]; envKey(slashed) == key {
			return slashed
		}
	}
	return ""
}
