// SPDX-License-Identifier: Apache-2.0

package attachment

import (
	"cmp"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/deviceinfo"
)

const (
	// maxPluginFiles bounds the device plugin's files that one call reads.
	maxPluginFiles = 256
	// maxPluginNames bounds the names listed in their directory.
	maxPluginNames = 1 << 16
	pluginSuffix   = "-device.json"
)

// pluginFile is the device plugin's file of one device (Device Information
// Specification, §4.1). Without a file, neither info nor err is set.
type pluginFile struct {
	path string
	info *deviceinfo.Info
	err  error
}

// readPluginFile reads the device plugin's file of a device, once.
func (s *Search) readPluginFile(resource, id string) pluginFile {
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
	s.q.reportUnread(p.err)
	s.files[key] = p
	return p
}

// describeAllocated describes an allocated device by the device plugin's file or, without
// one, as a PCI function if its ID is an address. Otherwise ok is false.
func (s *Search) describeAllocated(resource, id string) (a Attachment, ok bool) {
	a = Attachment{Resource: resource, DeviceID: id, Owner: OwnerUnknown}
	var p pluginFile
	if resource != "" {
		p = s.readPluginFile(resource, id)
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

// resourceOf returns the resource of an environment variable: one that the kubelet allocated
// to the container, or one in the names of the device plugin's files of its devices. It
// returns "" if neither exists.
func (s *Search) resourceOf(v variable) string {
	if s.answer != nil && s.answer.answered {
		for _, r := range s.answer.container.Resources {
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
		if s.names, err = s.host.ReadDir(cmp.Or(s.opts.DPDir, deviceinfo.DefaultDPDir), maxPluginNames); err != nil &&
			!errdefs.IsNotFound(err) {
			s.q.reportUnread(err)
		}
	}
	if _, known := s.resources[v.key]; !known {
		s.resources[v.key] = v.resourceIn(s.names)
	}
	return s.resources[v.key]
}

// resourceIn returns the resource of the first device plugin's file that is of the variable's
// resource and of one of its devices, or "".
func (v *variable) resourceIn(names []string) string {
	ids := make(map[string]bool, len(v.ids))
	for _, id := range v.ids {
		ids[dashed(id)] = true
	}
	for _, name := range names {
		// A resource and its variable have the same length.
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

// undashed returns the resource of a file's name, which has "-" in place of "/", if it is of
// the variable with that key, or "".
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
