// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	// maxPluginFiles bounds the device plugin's files that one question reads.
	maxPluginFiles = 256
	// maxPluginNames bounds the names in their directory that are looked at where
	// only the environment tells of a resource.
	maxPluginNames = 1 << 16
	pluginSuffix   = "-device.json"
)

// pluginFile is the device plugin's file of one device (Device Information
// Specification, §4.1). Neither info nor err is set where there is none.
type pluginFile struct {
	path string
	info *deviceinfo.Info
	err  error
}

// pluginFile reads the device plugin's file of a device, once.
func (s *search) pluginFile(resource, id string) pluginFile {
	key := [2]string{resource, id}
	if p, ok := s.files[key]; ok || len(s.files) >= maxPluginFiles {
		return p
	}
	var p pluginFile
	if p.path, p.err = s.dp.Path(resource, id); p.err == nil {
		p.info, p.err = s.dp.Load(resource, id)
	}
	if errdefs.IsNotFound(p.err) {
		p.err = nil
	}
	if p.err != nil {
		s.q.unread(p.err)
	}
	if s.files == nil {
		s.files = map[[2]string]pluginFile{}
	}
	s.files[key] = p
	return p
}

// allocated describes a device that a device plugin allocated: by the plugin's
// file, or, without one, as a PCI function where its ID is an address. ok is
// false when neither tells anything.
func (s *search) allocated(resource, id string) (a Attachment, ok bool) {
	a = Attachment{Resource: resource, DeviceID: id, Owner: OwnerUnknown}
	var p pluginFile
	if resource != "" {
		p = s.pluginFile(resource, id)
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
		if d, isDevice := deviceOf(a.Info); isDevice && d.contradicts(id) {
			a.refuse(&ConflictError{On: which(&a), First: Claim{p.path, d.String()}, Second: Claim{"its device ID", "PCI device " + normal(id)},
				Hint: "restart the device plugin, so that it writes the file anew"})
		}
		return a, true
	case isPCIAddress(id):
		a.Info = &deviceinfo.Info{Type: deviceinfo.TypePCI, Version: deviceinfo.Version, PCI: &deviceinfo.PCI{PCIAddress: normal(id)}}
		a.Notes = append(a.Notes, "there is no device-info of the device; its ID is taken for a PCI address")
		return a, true
	}
	return a, false
}

// realName finds the resource that an environment variable stands for: among
// those that the kubelet gave the container, or by the names of the device
// plugin's files of its devices. It is "" where nothing tells.
func (s *search) realName(v variable) string {
	if s.w != nil && s.w.answered {
		for _, r := range s.w.own.Resources {
			if envKey(r.Name) == v.key {
				return r.Name
			}
		}
		return ""
	}
	for _, a := range s.attached {
		if a.Resource != "" && envKey(a.Resource) == v.key {
			return a.Resource
		}
	}
	if !s.listed {
		s.listed = true
		var err error
		if s.names, err = s.host.ReadDir(cmp.Or(s.opts.DPDir, deviceinfo.DefaultDPDir), maxPluginNames); err != nil && !errdefs.IsNotFound(err) {
			s.q.unread(err)
		}
	}
	real, known := s.realNames[v.key]
	if !known {
		real = v.resourceIn(s.names)
		if s.realNames == nil {
			s.realNames = map[string]string{}
		}
		s.realNames[v.key] = real
	}
	return real
}

// resourceIn finds the variable's resource by the names of device plugins' files: one
// is of the resource and of one of the variable's devices.
func (v *variable) resourceIn(names []string) string {
	ids := make(map[string]bool, len(v.ids))
	for _, id := range v.ids {
		ids[dashed(id)] = true
	}
	for _, name := range names {
		// A resource has as many bytes as its variable.
		n := len(v.key)
		if len(name) <= n || name[n] != '-' {
			continue
		}
		id, ok := strings.CutSuffix(name[n+1:], pluginSuffix)
		if !ok || !ids[id] {
			continue
		}
		if real := undashed(name[:n], v.key); real != "" {
			return real
		}
	}
	return ""
}

// undashed is the resource whose "/" a file's name has as "-", and which the
// variable of that key stands for; "" when there is none.
func undashed(resource, key string) string {
	for i := range len(resource) {
		if resource[i] != '-' {
			continue
		}
		if real := resource[:i] + "/" + resource[i+1:]; envKey(real) == key {
			return real
		}
	}
	return ""
}
