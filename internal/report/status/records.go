// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

const (
	// maxRecord is the largest record that is written or read, in bytes.
	maxRecord = 256 << 10
	// maxRecords bounds the records that are read when the daemon starts.
	maxRecords = 20000
)

// Records are the records of a state directory. They are for one goroutine.
type Records struct{ dir string }

// OpenRecords creates the directory of the records, which only root can read.
func OpenRecords(host hostfs.Root, stateDir string) (*Records, error) {
	dir := filepath.Join(stateDir, "status")
	d, err := host.MakeDir(dir, 0o700)
	if err != nil {
		return nil, fmt.Errorf("make directory of status records: %w", err)
	}
	return &Records{host.Path(dir)}, d.Close()
}

// Write writes a container's record.
func (r *Records) Write(c *Container) error {
	if err := checkID(c.ContainerID); err != nil {
		return err
	}
	data, err := encodeRecord(c)
	if err == nil {
		err = hostfs.ReplaceFile(filepath.Join(r.dir, c.ContainerID), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write status record of container %q: %w", c.ContainerID, err)
	}
	return nil
}

// encodeRecord returns the record, within the limit.
func encodeRecord(c *Container) ([]byte, error) {
	data, err := json.Marshal(c)
	if err != nil || len(data) <= maxRecord {
		return data, err
	}
	short := *c
	short.Requests, short.Edits = nil, nil
	short.More = fmt.Sprintf("%d requests and %d edits: the record would have had %d bytes", len(c.Requests),
		len(c.Edits), len(data))
	return json.Marshal(&short)
}

// Remove removes a container's record. An unknown container is no error.
func (r *Records) Remove(id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(r.dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove status record of container %q: %w", id, err)
	}
	return nil
}

// Read reads all records. A record that cannot be read is left out and named in the error. A file that is not a
// record is removed.
func (r *Records) Read() ([]Container, error) {
	d, err := os.Open(r.dir)
	if err != nil {
		return nil, fmt.Errorf("read status records: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(maxRecords)
	if err != nil && len(names) == 0 {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("read status records: %w", err)
	}
	var (
		out  []Container
		errs []error
	)
	for _, name := range names {
		c, err := r.readRecord(name)
		if err == nil {
			out = append(out, *c)
			continue
		}
		errs = append(errs, fmt.Errorf("read status record of container %q: %w", name, err))
		if !errdefs.IsInvalidArgument(err) {
			continue
		}
		if err := os.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return out, errors.Join(errs...)
}

func (r *Records) readRecord(id string) (*Container, error) {
	if err := checkID(id); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(r.dir, id), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := hostfs.ReadRegular(int(f.Fd()), maxRecord)
	if err != nil {
		return nil, err
	}
	return parseRecord(data, id)
}

// parseRecord parses the record of the container with the given ID.
func parseRecord(data []byte, id string) (*Container, error) {
	var c Container
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
	}
	if c.ContainerID != id {
		return nil, fmt.Errorf("found the record of container %q: %w", c.ContainerID, errdefs.ErrInvalidArgument)
	}
	return &c, nil
}

// checkID rejects an ID that could leave the directory.
func checkID(id string) error {
	if err := hostfs.CheckID(id); err != nil {
		return fmt.Errorf("container ID: %w", err)
	}
	return nil
}
