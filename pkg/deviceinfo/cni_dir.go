// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"errors"
	"fmt"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// CNIDir is the directory of CNI plugin files (§4.2), which an NPWG implementation
// maintains. The zero value is [DefaultCNIDir] on the host. Names are those of
// [CNIFileName], or any that are unique per attachment and pass [CheckFileName].
type CNIDir struct {
	Root hostfs.Root
	Dir  string // host path
}

func (d CNIDir) hostDir() (string, error) { return cleanDir(d.Dir, DefaultCNIDir) }

// locate returns the directory and the host path of a file.
func (d CNIDir) locate(name string) (dir, file string, err error) {
	if err := CheckFileName(name); err != nil {
		return "", "", fmt.Errorf("locate device-info: %w", err)
	}
	if dir, err = d.hostDir(); err != nil {
		return "", "", err
	}
	return dir, path.Join(dir, name), nil
}

// Path returns the full path of a file (§4.2), which is the value of the capability
// argument (§5.1.1).
func (d CNIDir) Path(name string) (string, error) {
	_, file, err := d.locate(name)
	return file, err
}

// CopyFrom copies the file of the allocated device from the device plugin's directory to
// name (§4.2.1), byte by byte, and creates the directory if it is missing. The content must
// satisfy the specification. It returns the content and the host path of the copy. The
// error is errdefs.ErrNotFound if the device plugin wrote no file, which is optional
// (§4.1.1).
func (d CNIDir) CopyFrom(dp DevicePluginDir, resource, deviceID, name string) (*Info, string, error) {
	dir, file, err := d.locate(name)
	if err != nil {
		return nil, "", err
	}
	info, data, err := dp.loadFile(resource, deviceID)
	if err != nil {
		return nil, "", fmt.Errorf("copy device-info of resource %q, device %q to %q: %w", resource, deviceID, file, err)
	}
	if err := d.writeFile(dir, name, file, data); err != nil {
		return nil, "", err
	}
	return info, file, nil
}

// writeFile replaces a file while no other writer of this package is active.
func (d CNIDir) writeFile(dir, name, file string, data []byte) error {
	return changeDir(d.Root, dir, func(dirfd int) error { return writeFileAt(dirfd, name, file, data) })
}

// Collect reads a file after the CNI plugins ran (§6.1.1). The error is errdefs.ErrNotFound
// if neither the device plugin nor a CNI plugin wrote the file.
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
	return readInfo(int(f.Fd()), name, file)
}

// Remove removes a file at CNI DEL (§4.2.1). A missing file is no error.
func (d CNIDir) Remove(name string) error {
	dir, _, err := d.locate(name)
	if err != nil {
		return err
	}
	return removeFile(d.Root, dir, name)
}

// RemoveSandbox removes all files of a removed sandbox and returns their host paths,
// sorted.
func (d CNIDir) RemoveSandbox(sandboxID string) ([]string, error) {
	dir, err := sandboxDir(d.Dir, sandboxID)
	if err != nil {
		return nil, err
	}
	f, names, err := listMatching(d.Root, dir, func(name string) bool {
		_, _, ok := MatchCNIFileName(name, sandboxID)
		return ok
	})
	if f == nil {
		return nil, err
	}
	defer f.Close()
	errs := []error{err}
	var removed []string
	for _, name := range names {
		file := path.Join(dir, name)
		if err := removeFileAt(int(f.Fd()), name, file); err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, file)
	}
	return removed, errors.Join(errs...)
}

// List reads all files, sorted by file; see [DevicePluginDir.List]. Network and IfName are
// empty, because a name cannot be split without the sandbox ID.
func (d CNIDir) List() ([]Entry, error) {
	dir, err := d.hostDir()
	if err != nil {
		return nil, err
	}
	return listEntries(d.Root, dir, func(string) bool { return true })
}

// File returns the file at the full path that a CNI plugin receives in CNIDeviceInfoFile
// (§5.1.2). The file must be in the directory itself, whose path may contain other symlinks
// (/run for /var/run). Another directory is errdefs.ErrPermissionDenied.
func (d CNIDir) File(fullPath string) (CNIFile, error) {
	dir, err := d.hostDir()
	if err != nil {
		return CNIFile{}, err
	}
	if err := d.checkFullPath(fullPath, dir); err != nil {
		return CNIFile{}, fmt.Errorf("read %s %q: %w", CapabilityKey, fullPath, err)
	}
	return CNIFile{dir: d, name: path.Base(fullPath)}, nil
}

// checkFullPath returns an error unless a path is that of a file in the directory.
func (d CNIDir) checkFullPath(fullPath, dir string) error {
	if err := hostfs.CheckPath(fullPath); err != nil {
		return err
	}
	if path.Clean(fullPath) != fullPath {
		return fmt.Errorf("the path is not clean: %w", errdefs.ErrInvalidArgument)
	}
	if parent := path.Dir(fullPath); parent != dir {
		realParent, err1 := d.resolveExisting(parent)
		realDir, err2 := d.resolveExisting(dir)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if realParent != realDir {
			return fmt.Errorf("it is not in the directory %q: %w", dir, errdefs.ErrPermissionDenied)
		}
	}
	return CheckFileName(path.Base(fullPath))
}

// resolveExisting returns p with the symlinks resolved in the part that exists.
func (d CNIDir) resolveExisting(p string) (string, error) {
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
