// SPDX-License-Identifier: Apache-2.0

package artifact

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Module is a Go module that is linked into a program.
type Module struct{ Path, Version string }

// String is PATH@VERSION.
func (m Module) String() string { return m.Path + "@" + m.Version }

// Modules returns the modules that are linked into each program of a directory, by the program's name.
func Modules(programs string) (map[string][]Module, error) {
	infos, err := readBuildInfos(programs)
	if err != nil {
		return nil, err
	}
	found := map[string][]Module{}
	for name, info := range infos {
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			found[name] = append(found[name], Module{d.Path, d.Version})
		}
	}
	return found, nil
}

// readBuildInfos returns the build information in the programs of a directory, by name.
func readBuildInfos(programs string) (map[string]*buildinfo.BuildInfo, error) {
	entries, err := os.ReadDir(programs)
	if err != nil {
		return nil, err
	}
	infos := map[string]*buildinfo.BuildInfo{}
	for _, e := range entries {
		if infos[e.Name()], err = buildinfo.ReadFile(filepath.Join(programs, e.Name())); err != nil {
			return nil, fmt.Errorf("read how %q was built: %w", e.Name(), err)
		}
	}
	return infos, nil
}

var licenseFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)(\.(md|txt)|-[a-z0-9.-]+)?$`)

// Licenses returns Jackfield's licence, and one file with the licences of Go and of all modules in
// the programs of a directory. A module without a licence is an error.
func (b Build) Licenses(ctx context.Context, programs string) ([]File, error) {
	byProgram, err := Modules(programs)
	if err != nil {
		return nil, err
	}
	var modules []Module
	for _, list := range byProgram {
		modules = append(modules, list...)
	}
	slices.SortFunc(modules, func(a, b Module) int { return strings.Compare(a.String(), b.String()) })
	modules = slices.Compact(modules)
	own, err := os.ReadFile(filepath.Join(b.Source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	dirs, err := moduleDirs(ctx, b.Source, modules)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	text.WriteString("The programs of Jackfield contain the following software.\n")
	goVersion, err := GoVersion(programs)
	if err != nil {
		return nil, err
	}
	if err := appendLicenses(&text, "Go "+goVersion, dirs[""]); err != nil {
		return nil, err
	}
	for _, m := range modules {
		if err := appendLicenses(&text, m.Path+" "+m.Version, dirs[m.String()]); err != nil {
			return nil, err
		}
	}
	return []File{{Name: "LICENSE", Mode: 0o644, Data: own},
		{Name: "THIRD_PARTY_LICENSES", Mode: 0o644, Data: text.Bytes()}}, nil
}

// appendLicenses writes the licences in a directory. A missing directory or licence is an error.
func appendLicenses(w *bytes.Buffer, title, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read licences of %s: %w", title, err)
	}
	found := false
	for _, e := range entries {
		if !e.Type().IsRegular() || !licenseFile.MatchString(e.Name()) {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(w, "\n%s\n%s, %s\n\n%s\n", strings.Repeat("=", 80), title, e.Name(), bytes.TrimSpace(data))
	}
	if !found {
		return fmt.Errorf("read licences of %s: found none in its directory", title)
	}
	return nil
}

// moduleDirs returns the directories of modules by PATH@VERSION, and Go's directory by "".
func moduleDirs(ctx context.Context, source string, modules []Module) (map[string]string, error) {
	goEnv := exec.CommandContext(ctx, "go", "env", "GOROOT")
	goEnv.Dir = source
	root, err := goEnv.Output()
	if err != nil {
		return nil, fmt.Errorf("find Go: %w", err)
	}
	dirs := map[string]string{"": strings.TrimSpace(string(root))}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.String())
	}
	download := exec.CommandContext(ctx, "go", args...)
	download.Dir = source
	out, err := download.Output()
	if err != nil {
		return nil, fmt.Errorf("find modules: %w", err)
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var m struct{ Path, Version, Dir string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return dirs, nil
		} else if err != nil {
			return nil, fmt.Errorf("find modules: %w", err)
		}
		dirs[Module{m.Path, m.Version}.String()] = m.Dir
	}
}

// GoVersion returns the version of Go that built the programs of a directory, such as 1.26.0.
func GoVersion(programs string) (string, error) {
	infos, err := readBuildInfos(programs)
	found := ""
	for name, info := range infos {
		if found != "" && found != info.GoVersion {
			return "", fmt.Errorf("read Go version of %q: found %s, and another program has %s", name, info.GoVersion,
				found)
		}
		found = info.GoVersion
	}
	return strings.TrimPrefix(found, "go"), err
}
