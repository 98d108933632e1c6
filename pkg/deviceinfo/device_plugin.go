// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"
	"strings"
)

// DevicePluginDir is the directory of device plugin files (§4.1). The zero value is [DefaultDPDir] on the host.
type DevicePluginDir struct {
	Root string // directory below which all host paths are; "" is "/"
	Dir  string // host path; "" is [DefaultDPDir]
}

// locate returns the place of a device's file.
func (d DevicePluginDir) locate(resource, deviceID string) (infoFile, error) {
	file, err := dpFileName(resource, deviceID)
	if err != nil {
		return infoFile{}, err
	}
	return locateFile(d.Root, d.Dir, DefaultDPDir, file)
}

// Path returns the host path of a device's file (§4.1).
func (d DevicePluginDir) Path(resource, deviceID string) (string, error) {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return "", err
	}
	return f.path(), nil
}

// Save writes the file of a device (§4.1.1), atomically and with mode 0644, and creates the
// directory if it is missing. It returns the host path. Invalid device-info is refused; a
// vDPA device needs its path with either driver.
func (d DevicePluginDir) Save(resource, deviceID string, info *Info) (string, error) {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return "", err
	}
	data, err := marshalOptions{requireVDPAPath: true}.marshal(info)
	if err != nil {
		return "", fmt.Errorf("save device-info file %q: %w", f.path(), err)
	}
	open, err := createDir(f.host, f.dir)
	if err != nil {
		return "", err
	}
	defer open.Close()
	return f.path(), open.replaceFile(f.name, data)
}

// Load reads the file of a device. The error is errdefs.ErrNotFound without a file, and
// [FieldErrors] for invalid content.
func (d DevicePluginDir) Load(resource, deviceID string) (*Info, error) {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return nil, err
	}
	info, _, err := f.read()
	return info, err
}

// Remove removes the file of a device (§4.1.1). A missing file is no error. A device plugin removes its files before it
// stops.
func (d DevicePluginDir) Remove(resource, deviceID string) error {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return err
	}
	return f.remove()
}

// List reads the files of a resource, or all files if resource is "", sorted by file. A
// name cannot be split into resource and ID, so the files of a resource "a-b" are also
// listed for a resource "a". An invalid file has the error in its entry; a directory that
// does not exist has no files.
func (d DevicePluginDir) List(resource string) ([]Entry, error) {
	prefix := ""
	if resource != "" {
		prefix = strings.ReplaceAll(resource, "/", "-") + "-"
	}
	return listFiles(d.Root, d.Dir, DefaultDPDir, func(name string) bool {
		return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, dpSuffix)
	})
}
