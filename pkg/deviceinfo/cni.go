// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"path"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// CNIDir is the directory of CNI plugin files (§4.2), which an NPWG implementation
// maintains. The zero value is [DefaultCNIDir] on the host. Names are those of
// [CNIFileName], or any that are unique per attachment and pass [CheckFileName].
type CNIDir struct {
	Root string // directory below which all host paths are; "" is "/"
	Dir  string // host path; "" is [DefaultCNIDir]
}

// locate returns the place of a file.
func (d CNIDir) locate(name string) (infoFile, error) {
	if err := CheckFileName(name); err != nil {
		return infoFile{}, fmt.Errorf("locate device-info: %w", err)
	}
	return locateFile(d.Root, d.Dir, DefaultCNIDir, name)
}

// Path returns the full path of a file (§4.2), which is the value of the capability
// argument (§5.1.1).
func (d CNIDir) Path(name string) (string, error) {
	f, err := d.locate(name)
	if err != nil {
		return "", err
	}
	return f.Path(), nil
}

// CopyFrom copies the file of the allocated device from the device plugin's directory to
// name (§4.2.1), byte by byte, and creates the directory if it is missing. The content must
// satisfy the specification. It returns the content and the host path of the copy. The
// error is errdefs.ErrNotFound if the device plugin wrote no file, which is optional
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
		return nil, "", fmt.Errorf("copy device-info of resource %q, device %q to %q: %w", resource, deviceID, to.Path(), err)
	}
	if err := to.replace(data); err != nil {
		return nil, "", err
	}
	return info, to.Path(), nil
}

// Collect reads a file after the CNI plugins ran (§6.1.1). The error is errdefs.ErrNotFound
// if neither the device plugin nor a CNI plugin wrote the file.
func (d CNIDir) Collect(name string) (*Info, error) {
	f, err := d.locate(name)
	if err != nil {
		return nil, err
	}
	return f.Read()
}

// Remove removes a file at CNI DEL (§4.2.1). A missing file is no error.
func (d CNIDir) Remove(name string) error {
	f, err := d.locate(name)
	if err != nil {
		return err
	}
	return f.Remove()
}

// RemoveSandbox removes all files of a removed sandbox and returns their host paths,
// sorted.
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

// List reads all files, sorted by file; see [DevicePluginDir.List]. Network and IfName are
// empty, because a name cannot be split without the sandbox ID.
func (d CNIDir) List() ([]Entry, error) {
	return listFiles(d.Root, d.Dir, DefaultCNIDir, func(string) bool { return true })
}

// File returns the file at the full path that a CNI plugin receives in CNIDeviceInfoFile
// (§5.1.2). The file must be in the directory itself, whose path may contain other symlinks
// (/run for /var/run). Another directory is errdefs.ErrPermissionDenied.
func (d CNIDir) File(fullPath string) (CNIFile, error) {
	file, err := d.locateFullPath(fullPath)
	if err != nil {
		return CNIFile{}, fmt.Errorf("read %s %q: %w", CapabilityKey, fullPath, err)
	}
	return CNIFile{file}, nil
}

// locateFullPath returns the place of the file at a full path.
func (d CNIDir) locateFullPath(fullPath string) (infoFile, error) {
	if err := hostfs.CheckPath(fullPath); err != nil {
		return infoFile{}, err
	}
	if path.Clean(fullPath) != fullPath {
		return infoFile{}, fmt.Errorf("the path is not clean: %w", errdefs.ErrInvalidArgument)
	}
	parent, name := path.Split(fullPath)
	file, err := d.locate(name)
	if err != nil {
		return infoFile{}, err
	}
	if parent = path.Clean(parent); parent != file.dir && file.host.Canonical(parent) != file.host.Canonical(file.dir) {
		return infoFile{}, fmt.Errorf("it is not in the directory %q: %w", file.dir, errdefs.ErrPermissionDenied)
	}
	return file, nil
}

// CNIFile is the device-info file of one attachment, for its CNI plugins (§5.1.2).
// [CNIDir.File] returns it for the path that the plugin received.
type CNIFile struct{ infoFile }

// Write creates or replaces the file, and creates the directory if it is missing. Invalid
// device-info is refused.
func (f CNIFile) Write(info *Info) error {
	data, err := Marshal(info)
	if err != nil {
		return fmt.Errorf("write device-info file %q: %w", f.Path(), err)
	}
	return f.replace(data)
}

// Update reads the file, calls change with the content, and writes the result. No other
// writer of this package is active in the directory meanwhile. Without a file, change
// receives nil. If change returns nil or an error, nothing is written, and Update returns
// that error.
//
// The [Info] holds unknown keys, so they are kept.
func (f CNIFile) Update(change func(current *Info) (*Info, error)) error {
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
			return fmt.Errorf("update device-info file %q: %w", f.Path(), err)
		}
		return d.replaceFile(f.name, data)
	})
}
