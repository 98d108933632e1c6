// SPDX-License-Identifier: Apache-2.0

// Package arrows holds the project's structure: who may import whom.
package arrows

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
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

// leaf packages stand on nothing of Jackfield's but the floor, and on what is
// listed here.
var leaves = map[string][]string{
	"pkg/hostfs":                  nil,
	"pkg/wording":                 nil,
	"pkg/edits":                   nil,
	"pkg/version":                 nil,
	"pkg/busytest":                nil,
	"pkg/telemetry":               nil,
	"pkg/annotation":              nil,
	"pkg/deviceinfo":              nil,
	"pkg/cdiregistry":             nil,
	"pkg/policy":                  nil,
	"internal/quantity":           nil,
	"pkg/config":                  {"internal/quantity"},
	"pkg/sysfs":                   nil,
	"pkg/sysfs/sysfstest":         nil,
	"pkg/podresources":            {"pkg/podresources/allocation"},
	"pkg/podresources/allocation": nil,
	"pkg/pathwatch":               nil,
	"internal/claims":             nil,
	"internal/socketdir":          {"internal/claims"},
	"pkg/staging":                 {"pkg/pathwatch", "internal/claims", "internal/socketdir"},
	"pkg/status":                  nil,
	"pkg/hooksd":                  {"pkg/hooksd/ocihook"},
	"pkg/hooksd/ocihook":          nil,
	"pkg/attachment":              {"pkg/deviceinfo", "pkg/podresources/allocation"},
}

// floor is what every leaf may stand on.
var floor = []string{"pkg/hostfs", "pkg/wording"}

// adapters are the doors.
var adapters = []string{"nri", "pkg/cli", "pkg/hook", "pkg/cni"}

func packages(t *testing.T) []pkg {
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
		t.Fatalf("go list found %d packages only", len(pkgs))
	}
	return pkgs
}

func TestArrows(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if why := forbidden(name, to, imp, ours); why != "" {
				t.Errorf("%s imports %s: %s", name, imp, why)
			}
		}
	}
}

func forbidden(from, to, imp string, ours bool) string {
	allowed, leaf := leaves[from]
	applier := strings.HasPrefix(from, "pkg/apply/")
	adapter := slices.Contains(adapters, from)
	command := strings.HasPrefix(from, "cmd/")
	switch {
	case strings.HasPrefix(imp, "github.com/sirupsen/logrus") && !adapter && !command:
		return "only adapters and commands log"
	case !ours:
		return ""
	case to == "pkg/busytest":
		return "only tests import it"
	case strings.HasPrefix(from, "pkg/") && (to == "nri" || strings.HasPrefix(to, "cmd/")):
		return "nothing under pkg/ imports a door or a command"
	case to == "pkg/telemetry" && !adapter && !command:
		return "only adapters and commands count"
	case command && !slices.Contains(adapters, to):
		return "a command imports its adapter only"
	case applier && to != "pkg/edits" && !(from == "pkg/apply/live" && to == "pkg/hostfs"):
		return "appliers import edits only"
	case slices.Contains(floor, from):
		return "the floor stands on nothing"
	case leaf && !slices.Contains(floor, to) && !slices.Contains(allowed, to):
		return "leaves do not import each other"
	case from == "pkg/resolve" && (slices.Contains(adapters, to) || strings.HasPrefix(to, "pkg/apply/")):
		return "resolve knows neither doors nor appliers"
	case !leaf && !applier && !adapter && !command && from != "pkg/resolve":
		return "the package has no place in the structure: name it in this test and in docs/architecture.md"
	}
	return ""
}

// Commands are doors' handles and nothing else; packages say what they hold.
func TestRooms(t *testing.T) {
	for _, p := range packages(t) {
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
				t.Errorf("%s/%s exits; only main does", name, file)
			}
			documented = documented || file == "doc.go"
		}
		if p.Name != "main" && !documented && len(p.GoFiles) > 1 {
			t.Errorf("%s has no doc.go", name)
		}
	}
}
