// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/base/name"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// CNIDir is the directory of CNI plugin files (§4.2), which an NPWG implementation maintains. The zero value is
// [DefaultCNIDir] on the host. File names are those of [CNIFileName], or any that are unique per attachment: not
// empty, no "/" and no NUL, not starting with ".", at most 255 bytes.
type CNIDir struct {
	Root string // directory below which all host paths are; "" is "/"
	Dir  string // host path; "" is [DefaultCNIDir]
}

// locate returns the place of a file.
func (d CNIDir) locate(file string) (infoFile, error) {
	if err := name.CheckFile(file); err != nil {
		return infoFile{}, fmt.Errorf("locate device-info: %w", err)
	}
	return locateFile(d.Root, d.Dir, DefaultCNIDir, file)
}

// Path returns the full path of a file (§4.2). An NPWG implementation passes it to libcni as
// RuntimeConf.CapabilityArgs[CapabilityKey], and libcni passes it to the plugins that declare the capability (§5.1.1).
func (d CNIDir) Path(name string) (string, error) {
	f, err := d.locate(name)
	if err != nil {
		return "", err
	}
	return f.path(), nil
}

// Name returns the name of the file at the full path that a CNI plugin receives; see [CapabilityPath] (§5.1.2). The
// file must be in the directory itself, whose path can contain other symlinks (/run for /var/run). Another directory
// is errdefs.ErrPermissionDenied.
func (d CNIDir) Name(fullPath string) (string, error) {
	name, err := d.nameOf(fullPath)
	if err != nil {
		return "", fmt.Errorf("read %s %q: %w", CapabilityKey, fullPath, err)
	}
	return name, nil
}

func (d CNIDir) nameOf(fullPath string) (string, error) {
	if err := hostfs.CheckPath(fullPath); err != nil {
		return "", err
	}
	if path.Clean(fullPath) != fullPath {
		return "", fmt.Errorf("the path is not clean: %w", errdefs.ErrInvalidArgument)
	}
	parent, name := path.Split(fullPath)
	file, err := d.locate(name)
	if err != nil {
		return "", err
	}
	if parent = path.Clean(parent); parent != file.dir && file.host.Canonical(parent) != file.host.Canonical(file.dir) {
		return "", fmt.Errorf("it is not in the directory %q: %w", file.dir, errdefs.ErrPermissionDenied)
	}
	return name, nil
}

// CopyFrom copies the file of the allocated device from the device plugin's directory to name (§4.2.1), byte by byte,
// and creates the directory if it is missing. The content must satisfy the specification. It returns the content and
// the host path of the copy. The error is errdefs.ErrNotFound if the device plugin wrote no file, which is optional
// (§4.1.1).
func (d CNIDir) CopyFrom(dp DevicePluginDir, resource, deviceID, name string) (*Info, string, error) {
	to, err := d.locate(name)
	if err != nil {
		return nil, "", err
	}
	from, err := dp.locate(resource, deviceID)
	if err != nil {
		return nil, "", err
	}
	info, data, err := from.read()
	if err != nil {
		return nil, "", fmt.Errorf("copy device-info of resource %q, device %q to %q: %w", resource, deviceID, to.path(), err)
	}
	if err := to.replace(data); err != nil {
		return nil, "", err
	}
	return info, to.path(), nil
}

// Read returns the content of a file: for a CNI plugin (§5.1.2), and for an NPWG implementation after the plugins ran
// (§6.1.1). The error is errdefs.ErrNotFound if the file does not exist.
func (d CNIDir) Read(name string) (*Info, error) {
	f, err := d.locate(name)
	if err != nil {
		return nil, err
	}
	info, _, err := f.read()
	return info, err
}

// Write creates or replaces a file (§5.1.2), and creates the directory if it is missing. Invalid device-info is
// refused.
func (d CNIDir) Write(name string, info *Info) error {
	f, err := d.locate(name)
	if err != nil {
		return err
	}
	data, err := Marshal(info)
	if err != nil {
		return fmt.Errorf("write device-info file %q: %w", f.path(), err)
	}
	return f.replace(data)
}

// Update reads a file, calls change with the content, and writes the result (§5.1.2). No other writer of this package
// is active in the directory meanwhile. Without a file, change receives nil. If change returns nil or an error,
// nothing is written, and Update returns that error.
//
// The [Info] holds unknown keys, so they are kept.
func (d CNIDir) Update(name string, change func(current *Info) (*Info, error)) error {
	f, err := d.locate(name)
	if err != nil {
		return err
	}
	return f.change(func(d *directory) error {
		current, _, err := d.readInfo(f.name)
		if err := hostfs.IgnoreNotFound(err); err != nil {
			return err
		}
		next, err := change(current)
		if err != nil || next == nil {
			return err
		}
		data, err := Marshal(next)
		if err != nil {
			return fmt.Errorf("update device-info file %q: %w", f.path(), err)
		}
		return d.replaceFile(f.name, data)
	})
}

// Remove removes a file at CNI DEL (§4.2.1). A missing file is no error.
func (d CNIDir) Remove(name string) error {
	f, err := d.locate(name)
	if err != nil {
		return err
	}
	return f.remove()
}

// RemoveSandbox removes all files of a removed sandbox and returns their host paths, sorted.
func (d CNIDir) RemoveSandbox(sandboxID string) ([]string, error) {
	open, err := d.openForSandbox(sandboxID)
	if err != nil {
		return nil, hostfs.IgnoreNotFound(err)
	}
	defer open.Close()
	names, err := open.listNames(belongsTo(sandboxID))
	errs := []error{err}
	var removed []string
	for _, name := range names {
		if err := open.removeFile(name); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, open.filePath(name))
	}
	return removed, errors.Join(errs...)
}

// List reads all files, sorted by file; see [DevicePluginDir.List]. Network and IfName are empty, because a name
// cannot be split without the sandbox ID.
func (d CNIDir) List() ([]Entry, error) {
	return listFiles(d.Root, d.Dir, DefaultCNIDir, func(string) bool { return true })
}
