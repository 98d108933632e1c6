// SPDX-License-Identifier: Apache-2.0

// Package arrows checks which packages may import which.
package arrows

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/jackfield/jackfield/"

type pkg struct {
	ImportPath, Dir, Name string
	GoFiles               []string
	Imports               []string
}

// layers are the folders of the architecture from top to bottom. A package imports packages of its own folder and of
// folders below it. Folders of one layer do not import each other.
var layers = [][]string{
	{"cmd"},
	{"nri", "internal/adapter"},
	{"internal/report"},
	{"internal/port"},
	{"internal/engine", "internal/deliver"},
	{"internal/source"},
	{"internal/config"},
	{"pkg"},
	{"internal/edit"},
	{"internal/host"},
	{"internal/base"},
}

// onlyTests are packages that only tests import.
var onlyTests = []string{"internal/base/testkit", "internal/host/sysfstest"}

// portable are the packages of the programs that run elsewhere than on a node, with all that they import.
var portable = map[string][]string{
	"cmd/jackfield-run":        {"internal/base/version", "pkg/devices"},              // it runs in containers
	"cmd/kubectl-jackfield":    {"internal/adapter/kubectl", "internal/base/version"}, // it runs on users' machines
	"internal/adapter/kubectl": {"internal/base/version"},
}

// pure are the packages that change nothing on the host.
var pure = []string{"internal/engine", "internal/deliver/nri", "internal/edit", "internal/edit/cdiedits", "internal/edit/oci"}

// layerOf returns the index of the layer that a package belongs to, and its folder.
func layerOf(name string) (layer int, folder string) {
	for i, folders := range layers {
		for _, f := range folders {
			if name == f || strings.HasPrefix(name, f+"/") {
				return i, f
			}
		}
	}
	return -1, ""
}

func isAdapter(name string) bool {
	layer, _ := layerOf(name)
	return layer >= 0 && layer <= 2
}

func listPackages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,GoFiles,Imports", "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 10 {
		t.Fatalf("go list found only %d packages", len(pkgs))
	}
	return pkgs
}

func TestImportsFollowLayers(t *testing.T) {
	for _, p := range listPackages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if fault := importFault(from, to, ours); fault != "" {
				t.Errorf("%s imports %s: %s", from, imp, fault)
			}
		}
	}
}

// importFault says why a package must not import another, or "".
func importFault(from, to string, ours bool) string {
	fromLayer, fromFolder := layerOf(from)
	toLayer, toFolder := layerOf(to)
	switch {
	case strings.HasPrefix(from, "deploy/"):
		if ours && !strings.HasPrefix(to, "deploy/") {
			return "programs of the build import nothing of the product"
		}
	case fromLayer < 0:
		return "the package is in no folder of the architecture: add the folder here and in docs/contributing/architecture.md"
	case strings.HasPrefix(to, "github.com/sirupsen/logrus") && !isAdapter(from):
		return "only adapters and commands log"
	case !ours:
	case portable[from] != nil:
		if !slices.Contains(portable[from], to) {
			return "the program does not run on a node"
		}
	case slices.Contains(onlyTests, to):
		return "only tests import it"
	case to == "internal/report/telemetry" && !isAdapter(from):
		return "only adapters and commands count"
	case toLayer < fromLayer:
		return toFolder + " lies above " + fromFolder
	case toLayer == fromLayer && toFolder != fromFolder:
		return "folders of one layer do not import each other"
	case fromFolder == "cmd" && toFolder != "nri" && toFolder != "internal/adapter" && to != "internal/source/kubelet":
		return "a command imports its adapter and what it passes to it"
	case fromFolder == "internal/base" && toFolder != "internal/base":
		return "internal/base imports nothing else"
	}
	return ""
}

// Other programs cannot import packages of internal/, so no exported name of pkg has a type of theirs.
func TestPublicPackagesHaveNoInternalTypes(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if !strings.HasPrefix(name, "pkg/") {
			continue
		}
		cmd := exec.Command("go", "doc", "-all", p.ImportPath)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go doc: %v", err)
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module+"internal/") {
				continue
			}
			use := regexp.MustCompile(`(?m)^.*\b` + path.Base(imp) + `\.[A-Z].*$`)
			for _, line := range use.FindAll(out, -1) {
				t.Errorf("%s: the documentation names %s: %s", name, imp, line)
			}
		}
	}
}

// The engine and the packages that only write edits into values change nothing on the host.
func TestPurePackagesChangeNothing(t *testing.T) {
	change := regexp.MustCompile(`\b(?:os|unix|syscall|hostfs)\.(?:Create|Mk|Mkdir|Remove|Rename|Replace|Write|Link|Symlink|Unlink|Ch|Lch|Fch|Truncate|Mount|Unmount|Set|Kill|Flock|Lock|Bind|Connect|Start)\w*\(|\bhost\.(?:MakeDir|Remove|Replace)\(`)
	if !change.MatchString("os.MkdirAll(") || !change.MatchString("p.host.Remove(") || change.MatchString("os.FileMode(") {
		t.Fatal("the pattern does not tell changes from reads")
	}
	checked := 0
	for _, p := range listPackages(t) {
		if !slices.Contains(pure, strings.TrimPrefix(p.ImportPath, module)) {
			continue
		}
		for _, file := range p.GoFiles {
			data, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			checked++
			for _, call := range change.FindAll(data, -1) {
				t.Errorf("%s/%s calls %s...), which changes the host", strings.TrimPrefix(p.ImportPath, module), file, call)
			}
		}
	}
	if checked < len(pure) {
		t.Errorf("only %d files were checked", checked)
	}
}

// docs/contributing/architecture.md has a row for every folder, in the order of the layers, which names its packages.
func TestArchitecturePageHasRowOfEveryFolder(t *testing.T) {
	page, err := os.ReadFile("../../docs/contributing/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z/]+)` \\|([^|\n]*)\\|").FindAllStringSubmatch(string(page), -1)
	var folders []string
	cells := map[string]string{}
	for _, row := range rows {
		if _, folder := layerOf(row[1]); folder == row[1] {
			folders = append(folders, folder)
			cells[folder] = row[2]
		}
	}
	if want := slices.Concat(layers...); !slices.Equal(folders, want) {
		t.Errorf("the page has the folders %q, want %q", folders, want)
	}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		_, folder := layerOf(name)
		below, ok := strings.CutPrefix(name, folder+"/")
		if folder != "" && ok && !strings.Contains(cells[folder], "`"+below+"`") {
			t.Errorf("docs/contributing/architecture.md: the row of %s does not name `%s`", folder, below)
		}
	}
}

// Each file names the licence, only main exits, a main.go has at most 60 lines, and packages have a doc.go.
func TestFilesFollowConventions(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		documented := false
		for _, file := range p.GoFiles {
			data, err := os.ReadFile(filepath.Join(p.Dir, file))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.HasPrefix(data, []byte("// SPDX-License-Identifier: Apache-2.0\n")) {
				t.Errorf("%s/%s: the first line does not name the licence", name, file)
			}
			lines := bytes.Count(data, []byte("\n"))
			if p.Name == "main" && file == "main.go" && lines > 60 {
				t.Errorf("%s/main.go has %d lines, more than 60", name, lines)
			}
			if bytes.Contains(data, []byte("\nfunc init()")) {
				t.Errorf("%s/%s has an init function", name, file)
			}
			if bytes.Contains(data, []byte("os.Exit(")) && p.Name != "main" {
				t.Errorf("%s/%s calls os.Exit; only main may", name, file)
			}
			documented = documented || file == "doc.go"
		}
		if p.Name != "main" && !documented && len(p.GoFiles) > 1 {
			t.Errorf("%s has no doc.go", name)
		}
	}
}
