// SPDX-License-Identifier: Apache-2.0

package runtimeconfig

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

const (
	// CRIOFile is CRI-O's configuration file; its drop-ins are in the directory CRIOFile.d.
	CRIOFile = "/etc/crio/crio.conf"
	// CRIODropIn is the drop-in that turns NRI on. Its name sorts after those of other files.
	CRIODropIn = "/etc/crio/crio.conf.d/99-jackfield-nri.conf"
)

// Bounds of CRI-O's configuration with all of its drop-ins.
const (
	maxCRIOFiles = 1000
	maxCRIODepth = 32
)

// CRIO is CRI-O's configuration, the main file and its drop-ins, merged as CRI-O merges them: of
// two files that set a key the later one holds, and a table of a runtime handler or workload
// replaces an earlier one of its name whole.
type CRIO struct {
	Settings
	Files  []string // in the order of reading; the main one is first, if it exists
	Faults []error  // each keeps CRI-O from starting
}

// ReadCRIO reads a configuration and its drop-ins, the files of FILE.d. CRI-O walks that directory
// with its subdirectories, in lexical order, and reads every file, whatever its name.
func ReadCRIO(host Files, file string) *CRIO {
	c := &CRIO{Settings: Settings{}}
	c.readFile(host, file)
	c.readDropIns(host, file+".d", 0)
	return c
}

func (c *CRIO) readDropIns(host Files, dir string, depth int) {
	names, err := host.ReadDir(dir)
	switch {
	case errdefs.IsNotFound(err) && depth == 0:
		return
	case err != nil:
		c.Faults = append(c.Faults, err)
		return
	case depth > maxCRIODepth:
		c.Faults = append(c.Faults, fmt.Errorf("%s: more than %d directories deep: %w", dir, maxCRIODepth, errdefs.ErrResourceExhausted))
		return
	}
	for _, name := range names {
		if len(c.Files) == maxCRIOFiles {
			c.Faults = append(c.Faults, fmt.Errorf("%s: more than %d files: %w", dir, maxCRIOFiles, errdefs.ErrResourceExhausted))
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

// crioNamedTable returns the table of a runtime handler or workload that a key is in, "" for other
// keys.
func crioNamedTable(key []string) string {
	if len(key) < 5 || !hasPrefix(key, []string{"crio", "runtime"}) || key[2] != "runtimes" && key[2] != "workloads" {
		return ""
	}
	return pathKey(key[:4])
}

// CRIOBlock is a setting that keeps NRI off, or plugins from connecting.
type CRIOBlock struct {
	Setting
	Key, Want, Effect string
}

// NRIBlocks returns the settings that keep NRI off or plugins from connecting.
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

// readsAfter reports whether CRI-O reads drop-in a after drop-in b. The main file comes before
// both.
func readsAfter(a, b string) bool {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) > 0
}

// crioHeader is the first line of the drop-in. It shows that Jackfield wrote the file.
const crioHeader = "# Written by jackfield enable-nri.\n"

// dropInText is the drop-in that turns NRI on and, where a file before it has them off, the
// connections of plugins.
func dropInText(connections bool) string {
	text := crioHeader + "[crio.nri]\nenable_nri = true\n"
	if connections {
		text += "nri_disable_connections = false\n"
	}
	return text
}

// EnableCRIONRI returns the drop-in to write, unless the configuration has NRI on. It is an error
// where CRI-O reads another drop-in later that keeps NRI off.
func EnableCRIONRI(host hostfs.Root, file string) (*Change, error) {
	conf := ReadCRIO(Files{Host: host}, CRIOFile)
	if err := errors.Join(conf.Faults...); err != nil {
		return nil, err
	}
	on, blocks := conf.Get("crio", "nri", "enable_nri"), conf.NRIBlocks()
	if on.IsSet() && len(blocks) == 0 {
		return &Change{File: on.File}, nil
	}
	connections := false
	for _, b := range blocks {
		if b.File != CRIOFile && readsAfter(b.File, file) {
			return nil, fmt.Errorf("%s has %s = %s, and CRI-O reads that file later; set %s = %s there, or give --config a name that comes after it: %w",
				b.Place(), b.Key, b.Written, b.Key, b.Want, errdefs.ErrFailedPrecondition)
		}
		connections = connections || b.Want == "false"
	}
	data, err := host.ReadFile(file, MaxFile)
	if err != nil && !errdefs.IsNotFound(err) {
		return nil, err
	}
	before := string(data)
	own := strings.Replace(before, "# Written by jackfield nri enable.\n", crioHeader, 1)
	if strings.TrimSpace(before) != "" && own != dropInText(false) && own != dropInText(true) {
		return nil, fmt.Errorf("the file exists; set enable_nri = true and nri_disable_connections = false in its [crio.nri]: %w", errdefs.ErrAlreadyExists)
	}
	return &Change{File: file, Before: before, After: dropInText(connections)}, nil
}
