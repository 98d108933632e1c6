// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/hostfs"
)

// Bounds of a configuration of containerd with all that it imports. Names that grow
// with each import, over a symlink to a directory above, end at the first.
const (
	maxImports     = 256
	maxImportBytes = 16 << 20
	maxImportDirs  = 1000
	maxImportNames = 10000 // in a directory
)

// runtimeFiles are a runtime's configuration files, which may lie on any file system:
// what is being looked at can be asked for by whoever gives up waiting for it.
type runtimeFiles struct {
	host hostfs.Root
	at   *atomic.Pointer[string] // nil where nobody asks
}

func (r runtimeFiles) look(path string) {
	if r.at != nil {
		r.at.Store(&path)
	}
}

func (r runtimeFiles) ReadFile(path string, max int64) ([]byte, error) {
	r.look(path)
	return r.host.ReadFile(path, max)
}

func (r runtimeFiles) ReadDir(path string, max int) ([]string, error) {
	r.look(path)
	return r.host.ReadDir(path, max)
}

func (r runtimeFiles) Lstat(path string) (unix.Stat_t, error) {
	r.look(path)
	return r.host.Lstat(path)
}

func (r runtimeFiles) Stat(path string) (unix.Stat_t, error) {
	r.look(path)
	return r.host.Stat(path)
}

// tomlFile is a file of a runtime's configuration.
type tomlFile struct {
	name, text string
	statements []tomlStatement
}

// place is a statement's, for people.
func (f *tomlFile) place(st *tomlStatement) string {
	return fmt.Sprintf("%s:%d", f.name, 1+strings.Count(f.text[:st.valueStart], "\n"))
}

// containerdSetup is containerd's configuration with all that it imports, merged as
// containerd 2 does: of two that say the same key the later one holds, table by
// table, and disabled_plugins add up.
type containerdSetup struct {
	files   []tomlFile // in the order of merging; the main one is first
	missing []string   // imported by name, and not there: containerd does not start
	toml    toml
	version int               // the highest: all are brought to it
	nri     *said             // the key disable of NRI that holds
	connect *said             // the key disable_connections of NRI that holds
	off     []said            // disabled_plugins with NRI
	last    *said             // the last file that has anything in NRI's table; its value is that of disable there
	by      map[string]string // the file that says a key that holds, by table and key
}

// said is what a file says of NRI, and where.
type said struct{ file, place, value string }

// containerdFiles reads a configuration and what it imports as containerd does: the
// patterns of a file in their order, what they match sorted by name, what is imported
// by imported files behind all of that, and no path twice. Relative patterns are
// below the directory of the file that has them.
func containerdFiles(host runtimeFiles, file string) (*containerdSetup, error) {
	s := &containerdSetup{toml: toml{}, by: map[string]string{}}
	loaded := map[string]bool{}
	bytes := 0
	type pending struct{ name, importer string }
	for todo := []pending{{file, ""}}; len(todo) > 0; todo = todo[1:] {
		next := todo[0]
		if loaded[next.name] {
			continue
		}
		loaded[next.name] = true
		data, err := host.ReadFile(next.name, maxRuntimeFile)
		if errdefs.IsNotFound(err) && next.importer != "" {
			s.missing = append(s.missing, next.name+", which "+next.importer+" imports")
			continue
		}
		if err != nil {
			return nil, importedBy(next.importer, err)
		}
		if bytes += len(data); bytes > maxImportBytes || len(s.files) == maxImports {
			return nil, fmt.Errorf("%s and what it imports are more than %d files or %d bytes: %w", file, maxImports, maxImportBytes, errdefs.ErrResourceExhausted)
		}
		statements, err := tomlStatements(string(data))
		if err != nil {
			return nil, importedBy(next.importer, fmt.Errorf("%s: %w", next.name, err))
		}
		s.files = append(s.files, tomlFile{next.name, string(data), statements})
		for _, st := range statements {
			if st.header || !slices.Equal(st.path, []string{"imports"}) {
				continue
			}
			if !strings.HasPrefix(st.value, "[") {
				return nil, importedBy(next.importer, fmt.Errorf("%s: imports: found %s, want a list of files: %w", next.name, shortText(st.value), errdefs.ErrInvalidArgument))
			}
			names, err := resolveImports(host, path.Dir(next.name), list(st.value))
			if err != nil {
				return nil, fmt.Errorf("%s: imports: %w", next.name, err)
			}
			for _, name := range names {
				todo = append(todo, pending{name, next.name})
			}
		}
	}
	for i := range s.files {
		s.merge(&s.files[i])
	}
	return s, nil
}

// withMain is the setup with another text of the main file, whose imports are the same.
func (s *containerdSetup) withMain(text string) (*containerdSetup, error) {
	statements, err := tomlStatements(text)
	if err != nil {
		return nil, err
	}
	out := &containerdSetup{files: slices.Clone(s.files), missing: s.missing, toml: toml{}, by: map[string]string{}}
	out.files[0] = tomlFile{s.files[0].name, text, statements}
	for i := range out.files {
		out.merge(&out.files[i])
	}
	return out, nil
}

func importedBy(importer string, err error) error {
	if importer == "" {
		return err
	}
	return fmt.Errorf("imported by %s: %w", importer, err)
}

// resolveImports are the paths that patterns stand for. Only a * makes one of a name.
func resolveImports(host runtimeFiles, dir string, patterns []string) ([]string, error) {
	var out []string
	dirs := 0
	for _, pattern := range patterns {
		if !path.IsAbs(pattern) {
			pattern = path.Join(dir, pattern)
		}
		pattern = path.Clean(pattern)
		if !strings.Contains(pattern, "*") {
			out = append(out, pattern)
			continue
		}
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, fmt.Errorf("%q: %w: %w", pattern, err, errdefs.ErrInvalidArgument)
		}
		names, err := globHost(host, pattern, &dirs)
		if err != nil {
			return nil, err
		}
		if out = append(out, names...); len(out) > maxImportNames {
			return nil, fmt.Errorf("they match more than %d files: %w", maxImportNames, errdefs.ErrResourceExhausted)
		}
	}
	return out, nil
}

// globHost is filepath.Glob below the root, for a pattern without fault. Unlike that
// it does not pass over a directory that cannot be read for want of a right.
func globHost(host runtimeFiles, pattern string, dirs *int) ([]string, error) {
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
			return nil, fmt.Errorf("%q: more than %d directories: %w", pattern, maxImportDirs, errdefs.ErrResourceExhausted)
		}
		names, err := host.ReadDir(dir, maxImportNames)
		if errdefs.IsPermissionDenied(err) || errdefs.IsResourceExhausted(err) {
			return nil, err
		}
		for _, name := range names {
			if ok, err := path.Match(path.Base(pattern), name); err == nil && ok {
				out = append(out, path.Join(dir, name))
			}
		}
		if len(out) > maxImportNames {
			return nil, fmt.Errorf("%q: more than %d files: %w", pattern, maxImportNames, errdefs.ErrResourceExhausted)
		}
	}
	return out, nil
}

func (s *containerdSetup) merge(f *tomlFile) {
	in := []string{"plugins", nriPlugin}
	here := said{file: f.name, place: f.name}
	speaks := false
	statements := flat(f.statements)
	for i := range statements {
		st := &statements[i]
		if len(st.path) >= 2 && slices.Equal(st.path[:2], in) {
			if !speaks {
				here.place = f.place(st)
			}
			speaks = true
		}
		if st.header {
			continue
		}
		switch {
		case slices.Equal(st.path, []string{"version"}):
			if v, err := strconv.Atoi(st.value); err == nil {
				s.version = max(s.version, v)
			}
		case slices.Equal(st.path, []string{"disabled_plugins"}) && slices.Contains(list(st.value), nriPlugin):
			s.off = append(s.off, said{f.name, f.place(st), st.value})
		case slices.Equal(st.path, append(slices.Clone(in), "disable")):
			here.place, here.value = f.place(st), st.value
			s.nri = &said{f.name, f.place(st), st.value}
		case slices.Equal(st.path, append(slices.Clone(in), "disable_connections")):
			s.connect = &said{f.name, f.place(st), st.value}
		}
	}
	if speaks {
		s.last = &here
	}
	for table, keys := range tomlTables(statements) {
		if s.toml[table] == nil {
			s.toml[table] = map[string]string{}
		}
		maps.Copy(s.toml[table], keys)
		for key := range keys {
			s.by[table+"\x00"+key] = f.name
		}
	}
}

// replaced is the file in NRI's table of which containerd 1.7 finds no key disable,
// for it takes a plugin's table whole from the last file that has one. nil where it
// finds one, and where no containerd 1.7 reads the files.
func (s *containerdSetup) replaced() *said {
	if s.version > 2 || s.nri == nil || s.last.value != "" {
		return nil
	}
	return s.last
}

// refusesConnections reports whether NRI is told to let no plugin connect.
func (s *containerdSetup) refusesConnections() bool {
	return s.connect != nil && s.connect.value != "false"
}

// on reports whether NRI is on and lets plugins connect, whatever version of containerd reads the files.
func (s *containerdSetup) on() bool {
	switch {
	case len(s.off) > 0 || s.replaced() != nil || s.refusesConnections():
		return false
	case s.nri == nil:
		return s.version > 2
	}
	return s.nri.value == "false"
}

// saidBy is the file that says a key that holds; the main one where none does.
func (s *containerdSetup) saidBy(keys ...string) string {
	if file := s.by[strings.Join(keys, "\x00")]; file != "" {
		return file
	}
	return s.files[0].name
}
