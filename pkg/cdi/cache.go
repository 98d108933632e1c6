// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	rspec "github.com/opencontainers/runtime-spec/specs-go"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// Cache holds the spec files of some directories as they are on disk. It has no goroutine: each call takes the kernel's
// change events from a queue and reads again only the files that changed.
//
// It is safe for concurrent use. Lookups take turns: a lookup that arrives while another one reads changed files waits,
// because these can be the files with its device.
type Cache struct {
	host hostfs.Root

	mu     sync.Mutex
	closed bool
	reader *reader
}

// NewCache returns a cache. It reads nothing and opens no descriptor before the first call. It fails only if a
// directory is not an absolute path, or the root does not exist; [Cache.GetErrors] has the faults of files and
// directories.
func NewCache(opts Options) (*Cache, error) {
	host := hostfs.Host()
	if opts.Root != "" {
		var err error
		if host, err = hostfs.New(opts.Root); err != nil {
			return nil, err
		}
	}
	r, err := newReader(host, opts)
	if err != nil {
		return nil, err
	}
	return &Cache{host: host, reader: r}, nil
}

// Close closes the descriptors of the cache. The last state that was read stays available.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if err := c.reader.watch.Close(); err != nil {
		return fmt.Errorf("close CDI cache: %w", err)
	}
	return nil
}

// Snapshot returns an immutable view that includes every file which was renamed into place, or closed after writing,
// before the call. While nothing changes it returns the same pointer. After Close it returns the last view.
//
// A call costs one system call, one stat for each directory, and reading the files that changed. It lists a directory
// only if the directory is new or was replaced, if the kernel dropped events, or if the directory cannot be watched.
func (c *Cache) Snapshot() *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.reader.refresh()
	}
	return c.reader.current
}

// SnapshotOf returns a snapshot for lookups of the given qualified names, "vendor.com/class=all" among them. It omits
// files that cannot declare any of them, without parsing them. It keeps nothing for later calls. It is for a process
// that looks up a few names once; if a lookup fails, a lookup in [Cache.Snapshot] has the error that takes all files
// into account.
func (c *Cache) SnapshotOf(names []string) *Snapshot {
	opts := c.reader.opts
	opts.DisableWatch = true
	once, _ := newReader(c.host, opts) // the paths are absolute
	once.names = names
	once.refresh()
	return once.current
}

// Refresh reads the files that changed, and returns the errors of [Cache.GetErrors] in one. No other call needs it:
// each call reads the files that changed.
func (c *Cache) Refresh() error {
	errs := c.GetErrors()
	all := make([]error, 0, len(errs))
	for _, name := range slices.Sorted(maps.Keys(errs)) {
		all = append(all, errs[name])
	}
	return errors.Join(all...)
}

// GetErrors returns the errors of spec files and directories, by path: a *SpecError for a refused file, a
// *ConflictError (several joined) for a file whose devices other files declare, and a *DirError for a directory that
// cannot be read. A directory that does not exist is no error.
func (c *Cache) GetErrors() map[string]error {
	s, errs := c.Snapshot(), map[string]error{}
	for _, dir := range s.dirs {
		if dir.Err != nil {
			errs[dir.Path] = dir.Err
		}
	}
	for _, file := range s.Files() {
		if file.Err != nil {
			errs[file.Path] = file.Err
		}
	}
	return errs
}

// ListDevices returns the qualified names of all usable devices, sorted.
func (c *Cache) ListDevices() []string { return c.Snapshot().Devices() }

// ListVendors returns the vendors of all usable spec files, sorted.
func (c *Cache) ListVendors() []string {
	return c.listKinds(func(vendor, _ string) string { return vendor })
}

// ListClasses returns the device classes of all usable spec files, sorted.
func (c *Cache) ListClasses() []string {
	return c.listKinds(func(_, class string) string { return class })
}

// listKinds returns a part of the kinds of all valid files, sorted.
func (c *Cache) listKinds(part func(vendor, class string) string) []string {
	found := map[string]bool{}
	for _, file := range c.Snapshot().files {
		if vendor, class, ok := strings.Cut(file.kind, "/"); ok && file.err == nil {
			found[part(vendor, class)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// GetDevice returns the device with the given qualified name. The error is a *NotFoundError, a *ConflictError or a
// *NameError.
func (c *Cache) GetDevice(name string) (*Device, error) { return c.Snapshot().Device(name) }

// GetSpecDirectories returns the spec directories in rising priority.
func (c *Cache) GetSpecDirectories() []string { return slices.Clone(c.reader.opts.SpecDirs) }

// InjectDevices adds the edits of devices to an OCI spec: the edits of each spec file once, before those of its first
// device, and each device once. Device nodes get type, numbers and mode from the host if the spec file omits them.
//
// If devices cannot be found, InjectDevices returns their names, and an error with the reason for each. After an
// error the OCI spec is unchanged. On success *spec is replaced: a pointer that the caller has into it, such as
// spec.Process, can be outdated.
func (c *Cache) InjectDevices(spec *rspec.Spec, names ...string) (unresolved []string, err error) {
	if unresolved, err = injectDevices(c.host, c.Snapshot(), spec, names); err != nil {
		return unresolved, fmt.Errorf("inject CDI devices: %w", err)
	}
	return nil, nil
}

// WriteSpec validates a spec, writes it into the directory of the highest priority and returns the file's host path. It
// creates the directory if necessary. The file appears whole or not at all, replaces one of the same name, and has mode
// 0644. The name's extension, .json or .yaml, selects the syntax; without one of them, ".json" is appended.
func (c *Cache) WriteSpec(spec *specs.Spec, name string) (string, error) {
	file, err := c.specPath(name)
	var text []byte
	if err == nil {
		text, err = encodeSpec(spec, file)
	}
	if err == nil {
		err = c.host.Replace(file, text, hostfs.Own(0o644))
	}
	if err != nil {
		return "", fmt.Errorf("write CDI spec %q: %w", file, err)
	}
	return file, nil
}

// RemoveSpec removes the spec file that [Cache.WriteSpec] writes under a name. A missing file is no error.
func (c *Cache) RemoveSpec(name string) error {
	file, err := c.specPath(name)
	if err == nil {
		err = c.host.Remove(file)
	}
	if err != nil {
		return fmt.Errorf("remove CDI spec %q: %w", file, err)
	}
	return nil
}

// specPath returns the host path of the spec file with a name. After an error it is the file's name.
func (c *Cache) specPath(name string) (string, error) {
	name, err := specFileName(name)
	dirs := c.reader.opts.SpecDirs
	switch {
	case err != nil:
		return name, err
	case len(dirs) == 0:
		return name, errors.New("the cache has no spec directories")
	}
	return path.Join(dirs[len(dirs)-1], name), nil
}
