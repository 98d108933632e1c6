// SPDX-License-Identifier: Apache-2.0

package script

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/pkg/cli"
)

// Each recipe of the cookbook is a configuration that is taken, and answers its
// questions as the page says.
func TestCookbook(t *testing.T) {
	page, err := os.ReadFile("../../docs/policy-cookbook.md")
	if err != nil {
		t.Fatal(err)
	}
	recipes := regexp.MustCompile("(?s)```yaml\n(.*?)```\n\n```asks\n(.*?)```").FindAllSubmatch(page, -1)
	if len(recipes) < 9 || len(recipes) != bytes.Count(page, []byte("```yaml\n")) {
		t.Fatalf("%d recipes of %d have questions", len(recipes), bytes.Count(page, []byte("```yaml\n")))
	}
	flags := map[string]string{"cdi": "--cdi", "devices": "--device", "sockets": "--socket", "mounts": "--mount", "hooks": "--hook"}
	for _, r := range recipes {
		config := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(config, r[1], 0o644); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(r[2])) {
			// WHO[@NETWORK] KIND NAME OUTCOME [RULE]
			f := strings.Fields(line)
			if len(f) < 4 || flags[f[1]] == "" {
				t.Fatalf("cannot be understood: %q", line)
			}
			namespace, network, _ := strings.Cut(f[0], "@")
			args := []string{"policy", "check", "--config", config, "-o", "json", flags[f[1]], f[2], "--from-network", network}
			if namespace != "-" {
				args = append(args, "--namespace", namespace)
			}
			var out, messages bytes.Buffer
			cli.Run(context.Background(), args, cli.Env{Stdin: &bytes.Buffer{}, Stdout: &out, Stderr: &messages, Getenv: func(string) string { return "" }})
			var got []struct {
				Decisions []struct{ Outcome, Rule string }
			}
			if err := json.Unmarshal(out.Bytes(), &got); err != nil || len(got) != 1 || len(got[0].Decisions) != 1 {
				t.Fatalf("%s: %v %s%s", line, err, &out, &messages)
			}
			d := got[0].Decisions[0]
			if d.Outcome != f[3] || len(f) > 4 && d.Rule != f[4] {
				t.Errorf("%q: %s, rule %q; in\n%s", strings.TrimSpace(line), d.Outcome, d.Rule, r[1])
			}
		}
	}
}
