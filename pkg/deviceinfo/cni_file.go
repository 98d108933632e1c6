// SPDX-License-Identifier: Apache-2.0

package deviceinfo

import (
	"fmt"

	"github.com/containerd/errdefs"
)

// CNIFile is the device-info file of one attachment, for its CNI plugins (§5.1.2).
// [CNIDir.File] returns it for the path that the plugin received.
type CNIFile struct {
	dir  CNIDir
	name string
}

// Path returns the host path of the file.
func (f CNIFile) Path() (string, error) { return f.dir.Path(f.name) }

// Read returns the content. The error is errdefs.ErrNotFound if the file does not exist yet.
func (f CNIFile) Read() (*Info, error) { return f.dir.Collect(f.name) }

// Write creates or replaces the file, and creates the directory if it is missing. Invalid
// device-info is refused.
func (f CNIFile) Write(info *Info) error {
	dir, file, err := f.dir.locate(f.name)
	if err != nil {
		return err
	}
	data, err := Marshal(info)
	if err != nil {
		return fmt.Errorf("write device-info file %q: %w", file, err)
	}
	return f.dir.writeFile(dir, f.name, file, data)
}

// Update reads the file, calls change with the content, and writes the result. No other
// writer of this package is active in the directory meanwhile. Without a file, change
// receives nil. If change returns nil or an error, nothing is written, and Update returns
// that error.
//
// The [Info] holds unknown keys, so they are kept.
func (f CNIFile) Update(change func(current *Info) (*Info, error)) error {
	dir, file, err := f.dir.locate(f.name)
	if err != nil {
		return err
	}
	return changeDir(f.dir.Root, dir, func(fd int) error {
		current, err := readInfo(fd, f.name, file)
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
		return writeFileAt(fd, f.name, file, data)
	})
}

// Remove removes the file at DEL. A missing file is no error.
func (f CNIFile) Remove() error { return f.dir.Remove(f.name) }
