// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// Bounds of CRI-O's configuration with all of its drop-ins.
const (
	maxCrioFiles = 1000
	maxCrioDepth = 32
)

// The tables of CRI-O's configuration that are read here.
var (
	crioNRITable       = []string{"crio", "nri"}
	crioValidatorTable = []string{"crio", "nri", "default_validator"}
	crioRuntimeTable   = []string{"crio", "runtime"}
)

// crioSetup is CRI-O's configuration, the main file and its drop-ins, merged as CRI-O merges it: of two files that set a key the later one
// holds, and a table of a runtime handler or workload replaces an earlier one of its name whole.
type crioSetup struct {
	files  []string // in the order of reading; the main one is first, if it exists
	faults []error  // for each file that CRI-O does not start with
	toml   toml
	by     map[string]said // the statement that holds, by table and key
}

// crioFiles reads a configuration and its drop-ins, the files of FILE.d. CRI-O walks that directory with its subdirectories, in lexical order,
// and reads every file, whatever its name.
func crioFiles(host runtimeFiles, file string) *crioSetup {
	s := &crioSetup{toml: toml{}, by: map[string]said{}}
	s.read(host, file)
	s.walk(host, file+".d", 0)
	return s
}

func (s *crioSetup) walk(host runtimeFiles, dir string, depth int) {
	names, err := host.ReadDir(dir, maxImportNames)
	switch {
	case errdefs.IsNotFound(err) && depth == 0:
		return
	case err != nil:
		s.faults = append(s.faults, err)
		return
	case depth > maxCrioDepth:
		s.faults = append(s.faults, fmt.Errorf("%s: more than %d directories deep: %w", dir, maxCrioDepth, errdefs.ErrResourceExhausted))
		return
	}
	slices.Sort(names)
	for _, name := range names {
		if len(s.files) == maxCrioFiles {
			s.faults = append(s.faults, fmt.Errorf("%s: more than %d files: %w", dir, maxCrioFiles, errdefs.ErrResourceExhausted))
			return
		}
		file := path.Join(dir, name)
		if st, err := host.Lstat(file); err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR {
			s.walk(host, file, depth+1)
			continue
		}
		s.read(host, file)
	}
}

func (s *crioSetup) read(host runtimeFiles, file string) {
	data, err := host.ReadFile(file, maxRuntimeFile)
	if errdefs.IsNotFound(err) && len(s.files) == 0 {
		return // the main file need not exist
	}
	s.files = append(s.files, file)
	if err != nil {
		s.faults = append(s.faults, err)
		return
	}
	statements, err := tomlStatements(string(data))
	if err != nil {
		s.faults = append(s.faults, fmt.Errorf("%s: %w", file, err))
		return
	}
	f := tomlFile{file, string(data), flat(statements)}
	tables := tomlTables(f.statements)
	for table := range tables {
		if named := crioNamedTable(table); named != "" {
			maps.DeleteFunc(s.toml, func(t string, _ map[string]string) bool { return crioNamedTable(t) == named })
		}
	}
	for table, keys := range tables {
		if s.toml[table] == nil {
			s.toml[table] = map[string]string{}
		}
		maps.Copy(s.toml[table], keys)
	}
	for i := range f.statements {
		if st := &f.statements[i]; !st.header {
			s.by[strings.Join(st.path, "\x00")] = said{file, f.place(st), unquoteTOML(st.value)}
		}
	}
}

// crioNamedTable is the part of a table's path that names a runtime handler or a workload, "" where it has none.
func crioNamedTable(table string) string {
	parts := strings.Split(table, "\x00")
	if len(parts) < 4 || !slices.Equal(parts[:2], crioRuntimeTable) || parts[2] != "runtimes" && parts[2] != "workloads" {
		return ""
	}
	return strings.Join(parts[:4], "\x00")
}

// key is the statement that sets a key, nil where none does.
func (s *crioSetup) key(table []string, key string) *said {
	if by, ok := s.by[strings.Join(append(slices.Clone(table), key), "\x00")]; ok {
		return &by
	}
	return nil
}

// blocks are the statements that keep NRI off or plugins from connecting, with what to write instead.
func (s *crioSetup) blocks() []crioBlock {
	var out []crioBlock
	if by := s.key(crioNRITable, "enable_nri"); by != nil && by.value != "true" {
		out = append(out, crioBlock{said: *by, key: "enable_nri", want: "true", effect: "turns NRI off"})
	}
	if by := s.key(crioNRITable, "nri_disable_connections"); by != nil && by.value != "false" {
		out = append(out, crioBlock{said: *by, key: "nri_disable_connections", want: "false", effect: "lets no plugin connect"})
	}
	return out
}

// crioBlock is a statement that keeps NRI off, or plugins from connecting.
type crioBlock struct {
	said
	key, want, effect string
}

// crioReadsAfter reports whether CRI-O reads drop-in a after drop-in b. The main file comes before both.
func crioReadsAfter(a, b string) bool {
	return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) > 0
}
