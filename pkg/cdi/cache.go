// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/jackfield/jackfield/internal/cdiregistry"
	"github.com/jackfield/jackfield/internal/host/hostfs"
)

// DefaultSpecDirs returns the spec directories of CDI in rising priority.
func DefaultSpecDirs() []string { return []string{"/etc/cdi", "/var/run/cdi"} }

// Options change how a Cache reads spec files. The zero value is what a container runtime
// needs.
type Options struct {
	// SpecDirs are absolute paths in rising priority; nil stands for DefaultSpecDirs.
	SpecDirs []string
	// DisableAutoRefresh keeps what was read first until [Cache.Refresh] is called. Otherwise
	// each call reads the files that changed since the last one.
	DisableAutoRefresh bool
	// TrustAnyone also reads spec files that other users can write. It is for tests.
	TrustAnyone bool
}

// Device is one CDI device, with copies of the edits that its spec file declares.
type Device = cdiregistry.Device

// The errors of [Cache.Device], [Cache.SpecErrors] and [Cache.DirErrors].
type (
	// NotFoundError is a device that no usable spec file declares. Its text names the
	// directories searched, refused files and similar names. It is errdefs.ErrNotFound.
	NotFoundError = cdiregistry.NotFoundError
	// ConflictError is a device that several spec files of the same priority declare. It is
	// errdefs.ErrConflict.
	ConflictError = cdiregistry.ConflictError
	// NameError is a text that is no qualified device name. It is errdefs.ErrInvalidArgument.
	NameError = cdiregistry.NameError
	// SpecError is why a spec file is refused, with the line and column of each fault.
	SpecError = cdiregistry.SpecError
	// DirError is why a spec directory cannot be read.
	DirError = cdiregistry.DirError
)

// Cache holds the spec files of some directories. It is safe for concurrent use.
type Cache struct {
	host     hostfs.Root
	dirs     []string
	auto     bool
	registry *cdiregistry.Registry

	mu       sync.Mutex
	snapshot *cdiregistry.Snapshot // without auto refresh
}

// Open returns a cache. It fails only where a directory is not an absolute path; call
// [Cache.SpecErrors] and [Cache.DirErrors] for what cannot be read.
func Open(opts Options) (*Cache, error) {
	dirs := opts.SpecDirs
	if dirs == nil {
		dirs = DefaultSpecDirs()
	}
	registry, err := cdiregistry.New(hostfs.Host(), dirs, cdiregistry.Options{TrustAnyone: opts.TrustAnyone, DisableWatch: opts.DisableAutoRefresh})
	if err != nil {
		return nil, err
	}
	return &Cache{host: hostfs.Host(), dirs: slices.Clone(dirs), auto: !opts.DisableAutoRefresh, registry: registry}, nil
}

// Close closes the descriptors of the cache. What it read last stays available.
func (c *Cache) Close() error { return c.registry.Close() }

// current returns the snapshot that a call works on.
func (c *Cache) current() *cdiregistry.Snapshot {
	if c.auto {
		return c.registry.Snapshot()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.snapshot == nil {
		c.snapshot = c.registry.Snapshot()
	}
	return c.snapshot
}

// Refresh reads what changed, and returns what is wrong with spec files and directories. Only
// a cache without auto refresh needs it.
func (c *Cache) Refresh() error {
	s := c.registry.Snapshot()
	c.mu.Lock()
	c.snapshot = s
	c.mu.Unlock()
	var errs []error
	for _, dir := range s.Dirs() {
		errs = append(errs, dir.Err)
	}
	for _, file := range s.Files() {
		errs = append(errs, file.Err)
	}
	return errors.Join(errs...)
}

// Vendors returns the vendors of all usable spec files, sorted.
func (c *Cache) Vendors() []string {
	return c.kindParts(func(vendor, _ string) string { return vendor })
}

// Classes returns the device classes of all usable spec files, sorted.
func (c *Cache) Classes() []string {
	return c.kindParts(func(_, class string) string { return class })
}

func (c *Cache) kindParts(part func(vendor, class string) string) []string {
	found := map[string]bool{}
	for _, file := range c.current().Files() {
		var refused *SpecError
		if vendor, class, ok := strings.Cut(file.Kind, "/"); ok && !errors.As(file.Err, &refused) {
			found[part(vendor, class)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Devices returns the qualified names of all usable devices, sorted.
func (c *Cache) Devices() []string { return c.current().Devices() }

// Device returns the device with the given qualified name. The error is a *NotFoundError, a
// *ConflictError or a *NameError.
func (c *Cache) Device(name string) (*Device, error) { return c.current().Device(name) }

// SpecDirs returns the spec directories in rising priority.
func (c *Cache) SpecDirs() []string { return slices.Clone(c.dirs) }

// SpecErrors returns what is wrong with spec files, by path: a *SpecError for a refused file,
// a *ConflictError (several joined) for a file of which devices are not usable.
func (c *Cache) SpecErrors() map[string]error {
	errs := map[string]error{}
	for _, file := range c.current().Files() {
		if file.Err != nil {
			errs[file.Path] = file.Err
		}
	}
	return errs
}

// DirErrors returns why spec directories cannot be read, by path. A directory that does not
// exist is no error.
func (c *Cache) DirErrors() map[string]error {
	errs := map[string]error{}
	for _, dir := range c.current().Dirs() {
		if dir.Err != nil {
			errs[dir.Path] = dir.Err
		}
	}
	return errs
}

// WriteSpec writes a spec file into the directory of the highest priority and returns its
// path. It validates the spec first. The file appears whole or not at all, replaces one of the
// same name, and has mode 0644. The extension of the name, .json or .yaml, selects the syntax;
// without one, ".json" is appended.
func (c *Cache) WriteSpec(spec *specs.Spec, name string) (string, error) {
	dir, err := c.writableDir()
	if err != nil {
		return "", fmt.Errorf("write CDI spec %q: %w", name, err)
	}
	return cdiregistry.WriteSpec(c.host, dir, name, spec)
}

// RemoveSpec removes a spec file from the directory of the highest priority. A missing file is
// no error.
func (c *Cache) RemoveSpec(name string) error {
	dir, err := c.writableDir()
	if err != nil {
		return fmt.Errorf("remove CDI spec %q: %w", name, err)
	}
	return cdiregistry.RemoveSpec(c.host, dir, name)
}

var errNoSpecDirs = errors.New("the cache has no spec directories")

func (c *Cache) writableDir() (string, error) {
	if len(c.dirs) == 0 {
		return "", errNoSpecDirs
	}
	return c.dirs[len(c.dirs)-1], nil
}

// ParseSpec returns the spec in the text of a spec file, JSON or YAML. The error is a
// *SpecError.
func ParseSpec(text []byte) (*specs.Spec, error) {
	spec, faults := cdiregistry.Parse(text)
	if len(faults) > 0 {
		return nil, &SpecError{Diagnostics: faults}
	}
	return spec, nil
}
