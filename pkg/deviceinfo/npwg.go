// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// CNIDir is the directory of CNI plugin files (§4.2), as an NPWG implementation
// keeps it. The zero value is [DefaultCNIDir] on the host. Names are those of
// [CNIFileName], or any that are unique per attachment and pass
// [CheckFileName].
type CNIDir struct {
	Root hostfs.Root
	Dir  string // host path
}

func (d CNIDir) dir() (string, error) { return cleanDir(d.Dir, DefaultCNIDir) }

func (d CNIDir) locate(name string) (dir, file string, err error) {
	if err := CheckFileName(name); err != nil {
		return "", "", fmt.Errorf("locate device-info: %w", err)
	}
	if dir, err = d.dir(); err != nil {
		return "", "", err
	}
	return dir, path.Join(dir, name), nil
}

// Path is the full path of a file (§4.2), which is the value of the capability
// argument (§5.1.1).
func (d CNIDir) Path(name string) (string, error) {
	_, file, err := d.locate(name)
	return file, err
}

// CopyFrom copies the file of the allocated device from the device plugin's
// directory to name (§4.2.1), byte by byte, and makes the directory when it is
// missing. The content must satisfy the specification. It returns the content
// and the host path of the copy; errdefs.ErrNotFound when the device plugin wrote
// no file, which it need not (§4.1.1).
func (d CNIDir) CopyFrom(dp DevicePluginDir, resource, deviceID, name string) (*Info, string, error) {
	dir, file, err := d.locate(name)
	if err != nil {
		return nil, "", err
	}
	info, data, err := dp.load(resource, deviceID)
	if err != nil {
		return nil, "", fmt.Errorf("copy device-info of resource %q, device %q to %q: %w", resource, deviceID, file, err)
	}
	if err := d.write(dir, name, file, data); err != nil {
		return nil, "", err
	}
	return info, file, nil
}

// write replaces a file, in turn with the other writers of this package.
func (d CNIDir) write(dir, name, file string, data []byte) error {
	f, err := makeDir(d.Root, dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return locked(int(f.Fd()), dir, lockWait, func() error { return writeAt(int(f.Fd()), name, file, data) })
}

// Collect reads a file after the CNI plugins ran (§6.1.1); errdefs.ErrNotFound
// when neither the device plugin nor a CNI plugin wrote one.
func (d CNIDir) Collect(name string) (*Info, error) {
	dir, file, err := d.locate(name)
	if err != nil {
		return nil, err
	}
	f, err := openDir(d.Root, dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ParseOptions{}.readInfo(int(f.Fd()), name, file)
}

// Remove removes a file at CNI DEL (§4.2.1). That there is none is no error.
func (d CNIDir) Remove(name string) error {
	dir, _, err := d.locate(name)
	if err != nil {
		return err
	}
	return removeIn(d.Root, dir, name)
}

// RemoveSandbox removes all files of a sandbox that is gone, and returns their
// host paths, sorted.
func (d CNIDir) RemoveSandbox(sandboxID string) ([]string, error) {
	dir, err := sandboxDir(d.Dir, sandboxID)
	if err != nil {
		return nil, err
	}
	f, err := openDirIfThere(d.Root, dir)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	var names []string
	err = scanDir(f, dir, maxScan, func(name string) {
		if _, _, ok := MatchCNIFileName(name, sandboxID); ok {
			names = append(names, name)
		}
	})
	errs := []error{err}
	slices.Sort(names)
	var removed []string
	for _, name := range names {
		file := path.Join(dir, name)
		if err := removeAt(int(f.Fd()), name, file); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, file)
	}
	return removed, errors.Join(errs...)
}

// List reads all files, sorted by file; see [DevicePluginDir.List]. Network and
// IfName are empty, since a name cannot be taken apart without the sandbox ID.
func (d CNIDir) List() ([]Entry, error) {
	dir, err := d.dir()
	if err != nil {
		return nil, err
	}
	f, err := openDirIfThere(d.Root, dir)
	if f == nil {
		return nil, err
	}
	defer f.Close()
	return listEntries(int(f.Fd()), dir, func(visit func(string)) error {
		return scanDir(f, dir, maxScan, func(name string) {
			if CheckFileName(name) == nil {
				visit(name)
			}
		})
	})
}

// File is the file with the full path that CNIDeviceInfoFile gives to a CNI
// plugin (§5.1.2). It must lie in the directory itself, which may be spelt
// through other symlinks (/run for /var/run); any other path is
// errdefs.ErrPermissionDenied.
func (d CNIDir) File(fullPath string) (CNIFile, error) {
	dir, err := d.dir()
	if err != nil {
		return CNIFile{}, err
	}
	if err := hostfs.CheckPath(fullPath); err != nil {
		return CNIFile{}, fmt.Errorf("read %s: %w", CapabilityKey, err)
	}
	if path.Clean(fullPath) != fullPath {
		return CNIFile{}, fmt.Errorf("read %s %q: the path is not clean: %w", CapabilityKey, fullPath, errdefs.ErrInvalidArgument)
	}
	parent, name := path.Dir(fullPath), path.Base(fullPath)
	if parent != dir {
		same, err := d.same(parent, dir)
		if err != nil {
			return CNIFile{}, fmt.Errorf("read %s %q: %w", CapabilityKey, fullPath, err)
		}
		if !same {
			return CNIFile{}, fmt.Errorf("read %s %q: it is not in the directory %q: %w", CapabilityKey, fullPath, dir, errdefs.ErrPermissionDenied)
		}
	}
	if err := CheckFileName(name); err != nil {
		return CNIFile{}, fmt.Errorf("read %s %q: %w", CapabilityKey, fullPath, err)
	}
	return CNIFile{dir: d, name: name}, nil
}

// same reports whether two host paths lead to one directory, which may be yet to
// be made.
func (d CNIDir) same(a, b string) (bool, error) {
	ra, err := d.resolve(a)
	if err != nil {
		return false, err
	}
	rb, err := d.resolve(b)
	return ra == rb, err
}

// resolve is the canonical path of p, as far as it exists.
func (d CNIDir) resolve(p string) (string, error) {
	rest := ""
	for {
		real, err := d.Root.Resolve(p)
		if err == nil {
			return path.Join(real, rest), nil
		}
		if !errors.Is(err, unix.ENOENT) || p == "/" {
			return "", err
		}
		p, rest = path.Dir(p), path.Join(path.Base(p), rest)
	}
}
