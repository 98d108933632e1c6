// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// DevicePluginDir is the directory of device plugin files (§4.1). The zero value is
// [DefaultDPDir] on the host.
type DevicePluginDir struct {
	Root string // directory below which all host paths are; "" is "/"
	Dir  string // host path; "" is [DefaultDPDir]
}

// locate returns the place of a device's file.
func (d DevicePluginDir) locate(resource, deviceID string) (infoFile, error) {
	name, err := DPFileName(resource, deviceID)
	if err != nil {
		return infoFile{}, err
	}
	return locateFile(d.Root, d.Dir, DefaultDPDir, name)
}

// Path returns the host path of a device's file (§4.1).
func (d DevicePluginDir) Path(resource, deviceID string) (string, error) {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return "", err
	}
	return f.Path(), nil
}

// Save writes the file of a device (§4.1.1), atomically and with mode 0644, and creates the
// directory if it is missing. It returns the host path. Invalid device-info is refused; a
// vDPA device needs its path with either driver.
func (d DevicePluginDir) Save(resource, deviceID string, info *Info) (string, error) {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return "", err
	}
	data, err := ParseOptions{RequireVDPAPath: true}.marshal(info)
	if err != nil {
		return "", fmt.Errorf("save device-info file %q: %w", f.Path(), err)
	}
	open, err := createDir(f.host, f.dir)
	if err != nil {
		return "", err
	}
	defer open.Close()
	return f.Path(), open.replaceFile(f.name, data)
}

// Load reads the file of a device. The error is errdefs.ErrNotFound without a file, and
// [FieldErrors] for invalid content.
func (d DevicePluginDir) Load(resource, deviceID string) (*Info, error) {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return nil, err
	}
	return f.Read()
}

// Remove removes the file of a device (§4.1.1). A missing file is no error.
func (d DevicePluginDir) Remove(resource, deviceID string) error {
	f, err := d.locate(resource, deviceID)
	if err != nil {
		return err
	}
	return f.Remove()
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

// DevicePlugin writes the files of one running device plugin and removes them when the
// plugin stops (§4.1.1). It is safe for concurrent use.
type DevicePlugin struct {
	Dir DevicePluginDir

	mu    sync.Mutex
	saved map[[2]string]struct{}
}

// Save is [DevicePluginDir.Save] and records the file for Stop.
func (p *DevicePlugin) Save(resource, deviceID string, info *Info) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	file, err := p.Dir.Save(resource, deviceID, info)
	if err != nil {
		return "", err
	}
	if p.saved == nil {
		p.saved = map[[2]string]struct{}{}
	}
	p.saved[[2]string{resource, deviceID}] = struct{}{}
	return file, nil
}

// Remove is [DevicePluginDir.Remove].
func (p *DevicePlugin) Remove(resource, deviceID string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.Dir.Remove(resource, deviceID); err != nil {
		return err
	}
	delete(p.saved, [2]string{resource, deviceID})
	return nil
}

// Stop removes every file that was saved and not removed yet. Another call retries
// removals that failed.
func (p *DevicePlugin) Stop() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for key := range p.saved {
		if err := p.Dir.Remove(key[0], key[1]); err != nil {
			errs = append(errs, err)
			continue
		}
		delete(p.saved, key)
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}
