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

// leaves are packages that import only the floor and the packages that are listed here.
var leaves = map[string][]string{
	"internal/host/hostfs":               nil,
	"internal/base/diag":                 nil,
	"internal/edit":                      nil,
	"internal/base/version":              nil,
	"deploy/artifact":                    nil,
	"deploy/image":                       {"deploy/artifact"},
	"internal/base/busytest":             nil,
	"internal/report/telemetry":          {"internal/host/dircheck", "internal/report/status", "internal/cdiregistry"},
	"internal/host/httpserver":           nil,
	"internal/base/linequeue":            nil,
	"internal/host/privilege":            nil,
	"internal/host/filewatch":            nil,
	"internal/host/dircheck":             {"internal/config"},
	"internal/source/annotation":         nil,
	"pkg/deviceinfo":                     nil,
	"pkg/devices":                        nil,
	"internal/cdiregistry":               nil,
	"pkg/cdi":                            {"internal/edit/cdiedits", "internal/deliver/oci", "internal/cdiregistry", "internal/edit"},
	"internal/edit/cdiedits":             {"internal/cdiregistry", "internal/edit"},
	"internal/base/glob":                 nil,
	"internal/config/policy":             {"internal/base/glob"},
	"internal/base/quantity":             nil,
	"internal/base/jsontree":             nil,
	"internal/base/reserved":             nil,
	"internal/config":                    {"internal/base/glob", "internal/base/quantity", "internal/config/policy"},
	"internal/host/sysfs":                nil,
	"internal/host/sysfstest":            nil,
	"internal/source/kubelet":            {"internal/source/kubelet/allocation"},
	"internal/source/kubelet/allocation": nil,
	"internal/host/watch":                nil,
	"internal/source/devicemetadata":     nil,
	"internal/deliver/claims":            nil,
	"internal/port/record":               {"pkg/deviceinfo", "internal/port/vswitch"},
	"internal/port/attach": {"internal/deliver/claims", "internal/port/record", "internal/base/quantity", "internal/deliver/sockdir", "internal/port/vswitchdriver",
		"internal/source/attachment", "internal/config", "pkg/deviceinfo", "pkg/devices", "internal/config/policy", "internal/host/sysfs", "internal/port/vswitch"},
	"internal/deliver/sockdir":       {"internal/deliver/claims"},
	"internal/deliver/staging":       {"internal/edit", "internal/host/watch", "internal/deliver/claims", "internal/deliver/sockdir"},
	"internal/report/status":         {"internal/config/policy"},
	"internal/source/hooksd":         {"internal/source/hooksd/ocihook"},
	"internal/source/hooksd/ocihook": nil,
	"internal/config/runtimeconfig":  nil,
	"internal/port/vswitch":          nil,
	"internal/report/manifest":       {"internal/source/annotation", "internal/source/attachment", "internal/adapter/cni", "internal/config", "internal/edit", "internal/config/policy", "internal/engine"},
	"internal/report/explain": {"internal/edit/cdiedits", "internal/source/devicemetadata", "internal/report/manifest", "internal/source/annotation", "internal/deliver/nri/capability", "internal/source/attachment",
		"internal/cdiregistry", "internal/config", "pkg/deviceinfo", "internal/edit", "internal/source/hooksd", "internal/source/kubelet", "internal/config/policy", "internal/engine", "internal/deliver/staging"},
	"internal/report/policyeval":  {"internal/report/manifest", "internal/report/status", "internal/source/annotation", "internal/config", "internal/config/policy", "internal/engine"},
	"internal/port/vswitch/grout": {"internal/port/vswitch"},
	"internal/port/reconcile":     {"internal/port/record", "internal/report/status", "internal/port/vswitch"},
	"internal/port/vswitch/vpp":   {"internal/port/vswitch"},
	"internal/port/vswitch/ovs":   {"internal/port/vswitch"},
	"internal/port/vswitchdriver": {"internal/config", "internal/port/vswitch", "internal/port/vswitch/grout", "internal/port/vswitch/ovs", "internal/port/vswitch/vpp"},
	"internal/config/rootless":    {"internal/config"},
	"internal/report/orphans":     {"internal/cdiregistry", "pkg/deviceinfo"},
	"internal/report/validate":    {"internal/source/devicemetadata", "internal/base/glob", "internal/report/manifest", "internal/port/vswitchdriver", "internal/cdiregistry", "internal/adapter/cni", "internal/config", "pkg/deviceinfo", "internal/source/hooksd"},
	"internal/source/attachment":  {"internal/source/devicemetadata", "pkg/deviceinfo", "pkg/devices", "internal/source/kubelet/allocation"},
}

// floor is the shared machinery that every leaf and every applier may import.
var floor = []string{"internal/host/hostfs", "internal/base/deadline", "internal/base/diag", "internal/host/watch", "internal/base/jsontree", "internal/base/name", "internal/base/mountopt", "internal/base/reserved", "internal/host/trust"}

// adapters are the packages that may log and count.
var adapters = []string{"nri", "internal/adapter/cli", "internal/adapter/hook", "internal/adapter/cni", "internal/adapter/netavark"}

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

func TestImportsFollowStructure(t *testing.T) {
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if why := importFault(name, to, imp, ours); why != "" {
				t.Errorf("%s imports %s: %s", name, imp, why)
			}
		}
	}
}

func importFault(from, to, imp string, ours bool) string {
	allowed, leaf := leaves[from]
	applier := strings.HasPrefix(from, "pkg/apply/")
	adapter := slices.Contains(adapters, from)
	core := from == "internal/engine" || from == "internal/report/doctor"
	command := strings.HasPrefix(from, "cmd/")
	switch {
	case strings.HasPrefix(imp, "github.com/sirupsen/logrus") && !adapter && !command:
		return "only adapters and commands log"
	case !ours:
		return ""
	case to == "internal/base/busytest":
		return "only tests import it"
	case strings.HasPrefix(from, "pkg/") && (to == "nri" || strings.HasPrefix(to, "cmd/")):
		return "nothing under pkg/ imports the NRI plugin or a command"
	case to == "internal/report/telemetry" && !adapter && !command:
		return "only adapters and commands count"
	case from == "cmd/jackfield-run" && (to == "pkg/devices" || to == "internal/base/version"):
		return "" // it runs in containers
	case from == "cmd/kubectl-jackfield" && to == "internal/adapter/kubectl", from == "internal/adapter/kubectl" && to == "internal/base/version":
		return "" // they run on users' machines
	case command && !slices.Contains(adapters, to) && to != "internal/source/kubelet":
		return "a command imports its adapter and what it passes to it"
	case from == "internal/deliver/nri" && to == "internal/deliver/nri/capability":
		return "" // the part that does not link NRI
	case applier && to != "internal/edit" && !slices.Contains(floor, to):
		return "appliers import edits and shared machinery only"
	case slices.Contains(floor, from) && !slices.Contains(floor, to):
		return "shared machinery imports nothing but shared machinery"
	case leaf && !slices.Contains(floor, to) && !slices.Contains(allowed, to):
		return "leaves do not import each other"
	case core && (slices.Contains(adapters, to) || strings.HasPrefix(to, "pkg/apply/")):
		return "the engine imports neither adapters nor appliers"
	case !leaf && !applier && !adapter && !command && !core && !slices.Contains(floor, from):
		return "the package is not part of the structure: add it in this test and in docs/contributing/architecture.md"
	}
	return ""
}

// docs/contributing/architecture.md has a row for every package, and for no other.
func TestArchitecturePageNamesEveryPackage(t *testing.T) {
	page, err := os.ReadFile("../../docs/contributing/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `((?:cmd|pkg|internal)/[a-z/-]+|nri)` \\|").FindAllStringSubmatch(string(page), -1)
	named := map[string]bool{}
	for _, row := range rows {
		named[row[1]] = true
	}
	for _, p := range listPackages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if !named[name] && !strings.HasPrefix(name, "deploy/") {
			t.Errorf("docs/contributing/architecture.md has no row for %s", name)
		}
		delete(named, name)
	}
	for name := range named {
		t.Errorf("docs/contributing/architecture.md has a row for %s, which does not exist", name)
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
