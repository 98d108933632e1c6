// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// `make vulncheck` covers each module that has packages, and its tests.
func TestVulncheckCoversModules(t *testing.T) {
	out, err := exec.Command("make", "-C", top, "-n", "vulncheck").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, module := range goModules(t) {
		files, err := exec.Command("go", "-C", filepath.Join(top, module), "list", "./...").Output()
		if err != nil {
			t.Fatal(err)
		}
		if len(files) == 0 { // the module names tools, which are other people's programs
			continue
		}
		line := "govulncheck  -test ./..."
		if module != "/" {
			line = fmt.Sprintf("cd %s && go tool -modfile=%s/go.mod %s", module[1:], toolsFrom(t, module), line)
		}
		if !strings.Contains(string(out), line) {
			t.Errorf("make vulncheck does not run %q", line)
		}
	}
}

// toolsFrom returns the path from a module to the module of the tools.
func toolsFrom(t *testing.T, module string) string {
	t.Helper()
	path, err := filepath.Rel(module, "/test/tools")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// deviceProgramVulnerability is an entry of a vulnerability database: cilium/ebpf is affected before a version.
const deviceProgramVulnerability = `{"schema_version": "1.3.1", "id": "GO-2026-6238",
"modified": "2026-08-18T00:00:00Z", "published": "2026-08-18T00:00:00Z", "summary": "integer overflow",
"affected": [{"package": {"name": "github.com/cilium/ebpf", "ecosystem": "Go"},
  "ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}, {"fixed": %q}]}],
  "ecosystem_specific": {"imports": [{"path": "github.com/cilium/ebpf/btf", "symbols": ["loadRawSpec"]}]}}],
"database_specific": {"url": "https://pkg.go.dev/vuln/GO-2026-6238"}}`

// The code that reads device programs reaches the function of GO-2026-6238, and the required version has the fix.
func TestVulncheckAcceptsDevicePrograms(t *testing.T) {
	check := func(fixed string) (string, error) {
		t.Helper()
		db := t.TempDir()
		entry := fmt.Sprintf(deviceProgramVulnerability, fixed)
		if err := os.WriteFile(filepath.Join(db, "GO-2026-6238.json"), []byte(entry), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=test/tools/go.mod", "govulncheck", "-db=file://"+db, "./internal/deliver/live")
		cmd.Dir = top
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := check("0.22.0"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := check("1.0.0"); err == nil || !strings.Contains(out, "live.readInstructions calls ebpf.ProgramInfo.Instructions") {
		t.Errorf("govulncheck misses the call: %v\n%s", err, out)
	}
}
