// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// DevicePluginDir is the directory of device plugin files (§4.1). The zero value is
// [DefaultDPDir] on the host.
type DevicePluginDir struct {
	Root hostfs.Root
	Dir  string // host path
}

func (d DevicePluginDir) hostDir() (string, error) { return cleanDir(d.Dir, DefaultDPDir) }

// locate returns the directory, the name and the host path of a device's file.
func (d DevicePluginDir) locate(resource, deviceID string) (dir, name, file string, err error) {
	if name, err = DPFileName(resource, deviceID); err != nil {
		return "", "", "", err
	}
	if dir, err = d.hostDir(); err != nil {
		return "", "", "", err
	}
	return dir, name, path.Join(dir, name), nil
}

// Path returns the host path of a device's file (§4.1).
func (d DevicePluginDir) Path(resource, deviceID string) (string, error) {
	_, _, file, err := d.locate(resource, deviceID)
	return file, err
}

// Save writes the file of a device (§4.1.1), atomically and with mode 0644, and creates the
// directory if it is missing. It returns the host path. Invalid device-info is refused; a
// vDPA device needs its path with either driver.
func (d DevicePluginDir) Save(resource, deviceID string, info *Info) (string, error) {
	dir, name, file, err := d.locate(resource, deviceID)
	if err != nil {
		return "", err
	}
	data, err := ParseOptions{RequireVDPAPath: true}.marshal(info)
	if err != nil {
		return "", fmt.Errorf("save device-info file %q: %w", file, err)
	}
	f, err := createDir(d.Root, dir)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return file, writeFileAt(int(f.Fd()), name, file, data)
}

// Load reads the file of a device. The error is errdefs.ErrNotFound without a file, and
// [Diagnostics] for invalid content.
func (d DevicePluginDir) Load(resource, deviceID string) (*Info, error) {
	info, _, err := d.loadFile(resource, deviceID)
	return info, err
}

// loadFile also returns the bytes of the file.
func (d DevicePluginDir) loadFile(resource, deviceID string) (*Info, []byte, error) {
	dir, name, file, err := d.locate(resource, deviceID)
	if err != nil {
		return nil, nil, err
	}
	f, err := openDir(d.Root, dir)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := readFileAt(int(f.Fd()), name, file)
	if err != nil {
		return nil, nil, err
	}
	info, err := Parse(data, file)
	return info, data, err
}

// Remove removes the file of a device (§4.1.1). A missing file is no error.
func (d DevicePluginDir) Remove(resource, deviceID string) error {
	dir, name, _, err := d.locate(resource, deviceID)
	if err != nil {
		return err
	}
	return removeFile(d.Root, dir, name)
}

// List reads the files of a resource, or all files if resource is "", sorted by file. A
// name cannot be split into resource and ID, so the files of a resource "a-b" are also
// listed for a resource "a". An invalid file has the error in its entry; a directory that
// does not exist has no files.
func (d DevicePluginDir) List(resource string) ([]Entry, error) {
	dir, err := d.hostDir()
	if err != nil {
		return nil, err
	}
	prefix := ""
	if resource != "" {
		prefix = strings.ReplaceAll(resource, "/", "-") + "-"
	}
	return listEntries(d.Root, dir, func(name string) bool {
		return strings.HasPrefix(name, prefix) && strings.HasSuffix(name, dpSuffix)
	})
}

// listEntries reads the files in a directory whose names match.
func listEntries(host hostfs.Root, dir string, match func(name string) bool) ([]Entry, error) {
	f, names, err := listMatching(host, dir, func(name string) bool { return CheckFileName(name) == nil && match(name) })
	if f == nil {
		return nil, err
	}
	defer f.Close()
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(names))
	for _, name := range names {
		e := Entry{File: path.Join(dir, name)}
		if e.Info, e.Err = readInfo(int(f.Fd()), name, e.File); errors.Is(e.Err, unix.ENOENT) {
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
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
