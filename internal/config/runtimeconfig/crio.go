// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"fmt"
	"maps"
	"path"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// CRIOFile is CRI-O's configuration file; its drop-ins are in the directory CRIOFile.d.
const CRIOFile = "/etc/crio/crio.conf"

// Bounds on CRI-O's configuration with all its drop-ins.
const (
	maxCRIOFiles = 1000
	maxCRIODepth = 32
)

// CRIO is CRI-O's configuration, the main file and its drop-ins, merged like in CRI-O: the last
// file that sets a key counts, and a table of a runtime handler or workload replaces an earlier
// table of the same name completely.
type CRIO struct {
	Settings
	Files  []string // in the order of reading; the main one is first, if it exists
	Faults []error  // each keeps CRI-O from starting
}

// ReadCRIO reads a configuration and its drop-ins, the files of FILE.d. CRI-O walks that directory
// with its subdirectories in lexical order, and reads every file regardless of its name.
func ReadCRIO(host Files, file string) *CRIO {
	c := &CRIO{Settings: Settings{}}
	c.readFile(host, file)
	c.readDropIns(host, file+".d", 0)
	return c
}

// readDropIns reads the files of a drop-in directory in sorted order, and of its subdirectories, as CRI-O does.
func (c *CRIO) readDropIns(host Files, dir string, depth int) {
	names, err := host.ReadDir(dir)
	switch {
	case errdefs.IsNotFound(err) && depth == 0:
		return
	case err != nil:
		c.Faults = append(c.Faults, err)
		return
	case depth > maxCRIODepth:
		c.Faults = append(c.Faults, fmt.Errorf("%s: more than %d directories deep: %w", dir, maxCRIODepth,
			errdefs.ErrResourceExhausted))
		return
	}
	for _, name := range names {
		if len(c.Files) == maxCRIOFiles {
			c.Faults = append(c.Faults, fmt.Errorf("%s: more than %d files: %w", dir, maxCRIOFiles,
				errdefs.ErrResourceExhausted))
			return
		}
		file := path.Join(dir, name)
		if st, err := host.At(file).Lstat(file); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			c.readDropIns(host, file, depth+1)
			continue
		}
		c.readFile(host, file)
	}
}

// readFile adds the settings of one file. A later file replaces settings of an earlier one.
func (c *CRIO) readFile(host Files, file string) {
	data, err := host.ReadFile(file)
	if errdefs.IsNotFound(err) && len(c.Files) == 0 {
		return // the main file need not exist
	}
	c.Files = append(c.Files, file)
	if err != nil {
		c.Faults = append(c.Faults, err)
		return
	}
	document, err := parseTOML(file, string(data))
	if err != nil {
		c.Faults = append(c.Faults, fmt.Errorf("%s: %w", file, err))
		return
	}
	settings := newSettings(document)
	named := map[string]bool{}
	for _, set := range settings {
		if table := crioNamedTable(set.Path); table != "" {
			named[table] = true
		}
	}
	maps.DeleteFunc(c.Settings, func(_ string, s Setting) bool { return named[crioNamedTable(s.Path)] })
	maps.Copy(c.Settings, settings)
}

// crioNamedTable returns the table of a runtime handler or workload that contains a key, or "".
func crioNamedTable(key []string) string {
	if len(key) < 5 || !hasPrefix(key, []string{"crio", "runtime"}) || key[2] != "runtimes" && key[2] != "workloads" {
		return ""
	}
	return pathKey(key[:4])
}

// CRIOBlock is a setting that turns NRI off or prevents plugins from connecting.
type CRIOBlock struct {
	Setting
	Key, Want, Effect string
}

// NRIBlocks returns the settings that turn NRI off or prevent plugins from connecting.
func (c *CRIO) NRIBlocks() []CRIOBlock {
	var out []CRIOBlock
	for _, b := range []CRIOBlock{
		{Key: "enable_nri", Want: "true", Effect: "turns NRI off"},
		{Key: "nri_disable_connections", Want: "false", Effect: "lets no plugin connect"},
	} {
		if b.Setting = c.Get("crio", "nri", b.Key); b.IsNot(b.Want) {
			out = append(out, b)
		}
	}
	return out
}
