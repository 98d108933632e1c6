// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	nriapi "github.com/containerd/nri/pkg/api"

	"github.com/jackfield/jackfield/pkg/cdi"
)

// docs/reference/devices-json.md describes each environment variable that the programs read.
func TestEnvironmentVariablesAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs/reference/devices-json.md"))
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{
		"cdi.DirsEnv": cdi.DirsEnv, "notifySocketEnv": "NOTIFY_SOCKET", "api.PluginIdxEnvVar": nriapi.PluginIdxEnvVar,
		"api.PluginNameEnvVar": nriapi.PluginNameEnvVar, "api.PluginSocketEnvVar": nriapi.PluginSocketEnvVar,
	}
	lookup := regexp.MustCompile(`\b(?:[gG]etenv|LookupEnv)\(("[A-Z_]+"|[\w.]+EnvVar|[\w.]+Env)\)`)
	seen := map[string]bool{}
	for _, dir := range []string{"cmd", "nri", "pkg", "internal"} {
		err := filepath.WalkDir(filepath.Join(top, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range lookup.FindAllStringSubmatch(string(text), -1) {
				name, known := constants[m[1]]
				if !known {
					name = strings.Trim(m[1], `"`)
				}
				seen[name] = true
				if !strings.Contains(string(page), "`"+name+"`") {
					t.Errorf("%s reads %s, which docs/reference/devices-json.md does not describe", path, name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(seen) < 10 {
		t.Errorf("found only %d variables", len(seen))
	}
}
