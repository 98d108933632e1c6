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

// DevicePluginDir is the directory of device plugin files (§4.1). The zero value
// is [DefaultDPDir] on the host.
type DevicePluginDir struct {
	Root hostfs.Root
	Dir  string // host path
}

func (d DevicePluginDir) dir() (string, error) { return cleanDir(d.Dir, DefaultDPDir) }

// locate is the directory, the name and the host path of a device's file.
func (d DevicePluginDir) locate(resource, deviceID string) (dir, name, file string, err error) {
	if name, err = DPFileName(resource, deviceID); err != nil {
		return "", "", "", err
	}
	if dir, err = d.dir(); err != nil {
		return "", "", "", err
	}
	return dir, name, path.Join(dir, name), nil
}

// Path is the host path of a device's file (§4.1).
func (d DevicePluginDir) Path(resource, deviceID string) (string, error) {
	_, _, file, err := d.locate(resource, deviceID)
	return file, err
}

// Save writes the file of a device (§4.1.1), atomically and with mode 0644, and
// makes the directory when it is missing. It returns the host path. What the
// specification does not allow is not written; a vDPA device needs its path
// whatever its driver.
func (d DevicePluginDir) Save(resource, deviceID string, info *Info) (string, error) {
	dir, name, file, err := d.locate(resource, deviceID)
	if err != nil {
		return "", err
	}
	data, err := ParseOptions{RequireVDPAPath: true}.marshal(info)
	if err != nil {
		return "", fmt.Errorf("save device-info file %q: %w", file, err)
	}
	f, err := makeDir(d.Root, dir)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return file, writeAt(int(f.Fd()), name, file, data)
}

// Load reads the file of a device; errdefs.ErrNotFound when there is none,
// [Diagnostics] when its content is at fault.
func (d DevicePluginDir) Load(resource, deviceID string) (*Info, error) {
	info, _, err := d.load(resource, deviceID)
	return info, err
}

// load also returns the content as it is.
func (d DevicePluginDir) load(resource, deviceID string) (*Info, []byte, error) {
	dir, name, file, err := d.locate(resource, deviceID)
	if err != nil {
		return nil, nil, err
	}
	f, err := openDir(d.Root, dir)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	data, err := readAt(int(f.Fd()), name, file)
	if err != nil {
		return nil, nil, err
	}
	info, err := Parse(data, file)
	return info, data, err
}

// Remove removes the file of a device (§4.1.1). That there is none is no error.
func (d DevicePluginDir) Remove(resource, deviceID string) error {
	dir, name, _, err := d.locate(resource, deviceID)
	if err != nil {
		return err
	}
	return removeIn(d.Root, dir, name)
}

// List reads the files of a resource, or all of them when resource is "", sorted
// by file. Names cannot be taken apart: the files of a resource "a-b" are among
// those of a resource "a". A bad file is the error of its entry; a directory that
// does not exist has no files.
func (d DevicePluginDir) List(resource string) ([]Entry, error) {
	dir, err := d.dir()
	if err != nil {
		return nil, err
	}
	f, err := openDirIfThere(d.Root, dir)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	prefix := ""
	if resource != "" {
		prefix = strings.ReplaceAll(resource, "/", "-") + "-"
	}
	return listEntries(int(f.Fd()), dir, func(visit func(string)) error {
		return scanDir(f, dir, maxScan, func(name string) {
			if CheckFileName(name) == nil && strings.HasPrefix(name, prefix) && strings.HasSuffix(name, dpSuffix) {
				visit(name)
			}
		})
	})
}

// listEntries reads every file that names visits.
func listEntries(dirfd int, dir string, names func(visit func(string)) error) ([]Entry, error) {
	var all []string
	if err := names(func(name string) { all = append(all, name) }); err != nil {
		return nil, err
	}
	slices.Sort(all)
	entries := make([]Entry, 0, len(all))
	for _, name := range all {
		e := Entry{File: path.Join(dir, name)}
		if e.Info, e.Err = (ParseOptions{}).readInfo(dirfd, name, e.File); errors.Is(e.Err, unix.ENOENT) {
			continue
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// DevicePlugin writes the files of one running device plugin, and deletes them
// when it stops (§4.1.1). It may be used by several goroutines at once.
type DevicePlugin struct {
	Dir DevicePluginDir

	mu    sync.Mutex
	saved map[[2]string]struct{}
}

// Save is [DevicePluginDir.Save], and remembers the file.
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

// Stop removes every file that was saved and not removed yet. What fails is
// tried again by the next call.
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
