// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// CNIFile is the device-info file of one attachment, as its CNI plugins see it
// (§5.1.2). [CNIDir.File] makes it from the path the plugin was given.
type CNIFile struct {
	dir  CNIDir
	name string
}

// Path is the host path of the file.
func (f CNIFile) Path() (string, error) { return f.dir.Path(f.name) }

// Read is the content; errdefs.ErrNotFound when nobody wrote it yet.
func (f CNIFile) Read() (*Info, error) { return f.dir.Collect(f.name) }

// Write replaces the content, or makes the file, and the directory when it is
// missing. What the specification does not allow is not written.
func (f CNIFile) Write(info *Info) error {
	dir, file, err := f.dir.locate(f.name)
	if err != nil {
		return err
	}
	data, err := Marshal(info)
	if err != nil {
		return fmt.Errorf("write device-info file %q: %w", file, err)
	}
	return f.dir.write(dir, f.name, file, data)
}

// Update reads the file, lets change alter it, and writes the result, while no
// other writer of this package is at work in the directory. change gets nil when
// there is no file, and may return nil to leave everything as it is. An error of
// change is returned as it is, and nothing is written.
//
// Keys that the specification does not know are kept, being part of the [Info].
func (f CNIFile) Update(change func(current *Info) (*Info, error)) error {
	dir, file, err := f.dir.locate(f.name)
	if err != nil {
		return err
	}
	d, err := makeDir(f.dir.Root, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	fd := int(d.Fd())
	return locked(fd, dir, lockWait, func() error {
		current, err := ParseOptions{}.readInfo(fd, f.name, file)
		if err != nil && !errdefs.IsNotFound(err) {
			return err
		}
		next, err := change(current)
		if err != nil || next == nil {
			return err
		}
		data, err := Marshal(next)
		if err != nil {
			return fmt.Errorf("update device-info file %q: %w", file, err)
		}
		return writeAt(fd, f.name, file, data)
	})
}

// Remove removes the file at DEL. That there is none is no error.
func (f CNIFile) Remove() error { return f.dir.Remove(f.name) }
