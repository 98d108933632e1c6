// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/host/hostfs"
	"github.com/jackfield/jackfield/internal/host/jsonstore"
)

const (
	// maxRecord is the largest record that is written or read, in bytes.
	maxRecord = 256 << 10
)

// Records are the records of a state directory. They are for one goroutine.
type Records struct{ jsonstore.Store[Container] }

// OpenRecords creates the directory of the records, which only root can read.
func OpenRecords(host hostfs.Root, stateDir string) (*Records, error) {
	dir := filepath.Join(stateDir, "status")
	d, err := host.MakeDir(dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("make directory of status records: %w", err)
	}
	return &Records{store(host.Path(dir))}, d.Close()
}

// store returns the records in a directory. A file is named for its container.
func store(dir string) jsonstore.Store[Container] {
	return jsonstore.Store[Container]{Dir: dir, MaxSize: maxRecord, Check: func(file string, c *Container) error {
		if c.ContainerID != file {
			return fmt.Errorf("found the record of container %q", c.ContainerID)
		}
		for i := range c.Devices {
			if t := c.Devices[i].Type; t != "c" && t != "b" {
				return fmt.Errorf("devices[%d].type: invalid value %q: must be c or b", i, t)
			}
		}
		return checkID(file)
	}}
}

// ReadRecords returns the records of a state directory that a daemon wrote, as far as they can be read. It changes
// nothing.
func ReadRecords(host hostfs.Root, stateDir string) (found []Container) {
	records := store(host.Path(filepath.Join(stateDir, "status")))
	files, _ := records.Files()
	for _, file := range files {
		if c, err := records.Read(file); err == nil {
			found = append(found, *c)
		}
	}
	return found
}

// Write writes a container's record.
func (r *Records) Write(c *Container) error {
	if err := checkID(c.ContainerID); err != nil {
		return err
	}
	if err := r.Store.Write(c.ContainerID, shorten(c)); err != nil {
		return fmt.Errorf("write status record of container %q: %w", c.ContainerID, err)
	}
	return nil
}

// shorten returns the record within the limit.
func shorten(c *Container) *Container {
	data, err := json.Marshal(c)
	if err != nil || len(data) <= maxRecord {
		return c
	}
	short := *c
	short.Requests, short.Edits = nil, nil
	// The plugin needs the functions after a restart.
	short.Devices = slices.DeleteFunc(slices.Clone(c.Devices),
		func(d engine.HeldDevice) bool { return len(d.Device.Functions) == 0 })
	short.More = fmt.Sprintf("%d requests and %d edits: the record would have had %d bytes", len(c.Requests),
		len(c.Edits), len(data))
	return &short
}

// Remove removes a container's record. An unknown container is no error.
func (r *Records) Remove(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := r.Store.Remove(id); err != nil {
		return fmt.Errorf("remove status record of container %q: %w", id, err)
	}
	return nil
}

// Read reads all records. A record that cannot be read is left out and named in the error. A file that is not a
// record is removed.
func (r *Records) Read() ([]Container, error) {
	names, err := r.Files()
	if err != nil {
		return nil, fmt.Errorf("read status records: %w", err)
	}
	var (
		out  []Container
		errs []error
	)
	for _, name := range names {
		c, err := r.Store.Read(name)
		if c != nil {
			out = append(out, *c)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read status record of container %q: %w", name, err))
		}
		if errdefs.IsInvalidArgument(err) {
			errs = append(errs, hostfs.WithoutPath(os.Remove(filepath.Join(r.Dir, name))))
		}
	}
	return out, errors.Join(errs...)
}

// checkID rejects an ID that could leave the directory.
func checkID(id string) error {
	if err := hostfs.CheckID(id); err != nil {
		return fmt.Errorf("container ID: %w", err)
	}
	return nil
}
