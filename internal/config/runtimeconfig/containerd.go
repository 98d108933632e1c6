// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

const (
	// ContainerdFile is containerd's configuration file.
	ContainerdFile = "/etc/containerd/config.toml"
	// NRIPlugin is the name of NRI among containerd's plugins.
	NRIPlugin = "io.containerd.nri.v1.nri"
)

// Bounds on a configuration of containerd with all its imports. They also end imports whose names
// grow forever, through a symlink to a parent directory.
const (
	maxImports     = 256
	maxImportBytes = 16 << 20
	maxImportDirs  = 1000
)

var (
	nriTable      = []string{"plugins", NRIPlugin}
	nriDisable    = []string{"plugins", NRIPlugin, "disable"}
	nriConnection = []string{"plugins", NRIPlugin, "disable_connections"}
)

// Containerd is containerd's configuration with all imported files, merged like in containerd 2:
// the last file that sets a key counts, and disabled_plugins accumulate.
type Containerd struct {
	Settings
	Missing    []string  // files imported by name that do not exist: containerd does not start
	DisabledBy []Setting // each disabled_plugins that contains NRI

	files        []containerdFile // in the order of merging; the main one is first
	version      int              // the highest version of all files; containerd converts the others to it
	lastNRITable Setting          // NRI's table in the last file with one; its value is the table's disable
}

type containerdFile struct {
	name     string
	document []Setting
}

// ReadContainerd reads a configuration and its imports in containerd's order: the patterns of a
// file in their order, matches sorted by name, imports of imported files after all of these, and no
// path twice. A relative pattern is relative to the directory of its file.
func ReadContainerd(host Files, file string) (*Containerd, error) {
	c := &Containerd{}
	loaded := map[string]bool{}
	bytes, dirs := 0, 0
	type pending struct{ name, importer string }
	for todo := []pending{{file, ""}}; len(todo) > 0; todo = todo[1:] {
		next := todo[0]
		if loaded[next.name] {
			continue
		}
		loaded[next.name] = true
		data, err := host.ReadFile(next.name)
		if errdefs.IsNotFound(err) && next.importer != "" {
			c.Missing = append(c.Missing, next.name+", which "+next.importer+" imports")
			continue
		}
		if err != nil {
			return nil, importedBy(next.importer, err)
		}
		if bytes += len(data); bytes > maxImportBytes || len(c.files) == maxImports {
			return nil, fmt.Errorf("%s and what it imports are more than %d files or %d bytes: %w", file, maxImports,
				maxImportBytes, errdefs.ErrResourceExhausted)
		}
		document, err := parseTOML(next.name, string(data))
		if err != nil {
			return nil, importedBy(next.importer, fmt.Errorf("%s: %w", next.name, err))
		}
		c.files = append(c.files, containerdFile{next.name, document})
		imports := newSettings(document).Get("imports")
		if imports.IsSet() && !strings.HasPrefix(imports.Written, "[") {
			return nil, importedBy(next.importer, fmt.Errorf("%s: imports: invalid value %s: must be a list "+
				"of files: %w", next.name, imports.Written, errdefs.ErrInvalidArgument))
		}
		for _, pattern := range imports.List {
			names, err := resolveImport(host, path.Dir(next.name), pattern, &dirs)
			if err != nil {
				return nil, fmt.Errorf("%s: imports: %w", next.name, err)
			}
			for _, name := range names {
				todo = append(todo, pending{name, next.name})
			}
		}
	}
	c.mergeFiles()
	return c, nil
}

// importedBy names the importing file in an error.
func importedBy(importer string, err error) error {
	if importer == "" {
		return err
	}
	return fmt.Errorf("imported by %s: %w", importer, err)
}

// resolveImport returns the paths that match a pattern. A name without * is a plain path.
func resolveImport(host Files, dir, pattern string, dirs *int) ([]string, error) {
	pattern = absoluteImport(dir, pattern)
	if !strings.Contains(pattern, "*") {
		return []string{pattern}, nil
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, fmt.Errorf("%q: %w: %w", pattern, err, errdefs.ErrInvalidArgument)
	}
	return globHost(host, pattern, dirs)
}

// absoluteImport returns an import as an absolute path or pattern.
func absoluteImport(dir, pattern string) string {
	if !path.IsAbs(pattern) {
		pattern = path.Join(dir, pattern)
	}
	return path.Clean(pattern)
}

// globHost is filepath.Glob below the host's root, for a valid pattern. Unlike filepath.Glob it
// reports an unreadable directory. dirs counts the directories that were read.
func globHost(host Files, pattern string, dirs *int) ([]string, error) {
	in := []string{path.Dir(pattern)}
	if strings.ContainsAny(in[0], `*?[\`) {
		var err error
		if in, err = globHost(host, in[0], dirs); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, dir := range in {
		if *dirs++; *dirs > maxImportDirs {
			return nil, fmt.Errorf("%q: more than %d directories: %w", pattern, maxImportDirs,
				errdefs.ErrResourceExhausted)
		}
		names, err := host.ReadDir(dir)
		if errdefs.IsPermissionDenied(err) || errdefs.IsResourceExhausted(err) {
			return nil, err
		}
		for _, name := range names {
			if ok, err := path.Match(path.Base(pattern), name); err == nil && ok {
				out = append(out, path.Join(dir, name))
			}
		}
		if len(out) > maxNames {
			return nil, fmt.Errorf("%q: more than %d files: %w", pattern, maxNames, errdefs.ErrResourceExhausted)
		}
	}
	return out, nil
}

// mergeFiles sets the fields that depend on several files.
func (c *Containerd) mergeFiles() {
	c.Settings, c.DisabledBy, c.version, c.lastNRITable = Settings{}, nil, 0, Setting{}
	for _, f := range c.files {
		settings := newSettings(f.document)
		maps.Copy(c.Settings, settings)
		if v, err := strconv.Atoi(settings.Get("version").Value); err == nil {
			c.version = max(c.version, v)
		}
		if disabled := settings.Get("disabled_plugins"); slices.Contains(disabled.List, NRIPlugin) {
			c.DisabledBy = append(c.DisabledBy, disabled)
		}
		if first := slices.IndexFunc(f.document, func(s Setting) bool {
			return hasPrefix(s.Path, nriTable)
		}); first >= 0 {
			c.lastNRITable = Setting{File: f.name, Line: f.document[first].Line,
				Value: settings.Get(nriDisable...).Value}
		}
	}
}

// NRIDisable returns the key disable of NRI's table.
func (c *Containerd) NRIDisable() Setting { return c.Get(nriDisable...) }

// NRIConnections returns the key disable_connections of NRI's table.
func (c *Containerd) NRIConnections() Setting { return c.Get(nriConnection...) }

// ShadowedBy returns NRI's table in the last file with one, if that table lacks the key disable. It
// then hides the key from containerd 1.7, which uses a plugin's whole table from the last file. It
// returns the zero value if nothing is hidden, or if a file's version excludes containerd 1.7.
func (c *Containerd) ShadowedBy() Setting {
	if c.version > 2 || !c.NRIDisable().IsSet() || c.lastNRITable.Value != "" {
		return Setting{}
	}
	return c.lastNRITable
}

// NRIOn reports whether NRI is on and plugins can connect, in every version of containerd that
// reads the files.
func (c *Containerd) NRIOn() bool {
	disable := c.NRIDisable()
	switch {
	case len(c.DisabledBy) > 0 || c.ShadowedBy().IsSet() || c.NRIConnections().IsNot("false"):
		return false
	case !disable.IsSet():
		return c.version > 2
	}
	return !disable.IsNot("false")
}
