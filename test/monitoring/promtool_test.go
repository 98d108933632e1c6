// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/jackfield/jackfield/pkg/telemetry"
	"github.com/jackfield/jackfield/test/parts"
)

// promtool is Prometheus' own, from Debian's package. Where there is no archive the
// test is skipped; CI has promised one.
func promtool(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	store, err := parts.Open()
	if err == nil {
		var got parts.Unpacked
		if got, err = store.Get(ctx, parts.Prometheus()); err == nil {
			return got.Path("usr/bin/promtool")
		}
	}
	if os.Getenv("CI") != "true" && (errdefs.IsUnavailable(err) || errdefs.IsNotImplemented(err) || errors.Is(err, exec.ErrNotFound)) {
		t.Skipf("no promtool: %v", err)
	}
	t.Fatal(err)
	return ""
}

func TestPrometheusTakesTheRules(t *testing.T) {
	tool := promtool(t)
	out, err := exec.Command(tool, "check", "rules", "--lint-fatal", "../../deploy/monitoring/alerts.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// What the alerts say at given values: promtool runs them.
	out, err = exec.Command(tool, "test", "rules", "testdata/alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("SUCCESS")) {
		t.Errorf("promtool ran no test:\n%s", out)
	}
}

func TestPrometheusTakesTheMetrics(t *testing.T) {
	tool := promtool(t)
	var c telemetry.Counters
	c.RefusedBy.Add(`a "rule" with \ and` + "\n" + `a second line`)
	c.RefusedBy.Add("not UTF-8: \xff")
	c.Handlers[telemetry.CreateContainer].Observe(3 * time.Millisecond)
	c.Handlers[telemetry.CreateContainer].Observe(time.Minute)
	c.Count(telemetry.SourceCDI, telemetry.Refused)
	s := telemetry.Sample{Version: "v1", Runtime: "containerd", RuntimeVersion: "v2", NRI: "0.8.0", CDI: telemetry.CDI{Known: true, Files: 3}, StartedAt: 1.5e9, CPUSeconds: .25}
	text := telemetry.Expose(nil, &c, &s)
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
	for _, want := range []string{
		`jackfield_requests_total{source="cdi",outcome="refused"} 1`,
		`jackfield_handler_duration_seconds_bucket{handler="CreateContainer",le="0.005"} 1`,
		`jackfield_handler_duration_seconds_bucket{handler="CreateContainer",le="+Inf"} 2`,
		`jackfield_handler_duration_seconds_sum{handler="CreateContainer"} 60.003`,
		`jackfield_refusals_total{rule="a \"rule\" with \\ and\na second line"} 1`,
	} {
		if !strings.Contains(string(text), want+"\n") {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
}

func TestEveryFileIsTested(t *testing.T) {
	files, err := filepath.Glob("../../deploy/monitoring/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch filepath.Base(f) {
		case "alerts.yaml", "dashboard.json", "README.md":
		default:
			t.Errorf("%s is held by no test", f)
		}
	}
}

// A dashboard's queries are checked as rules, with Grafana's variables filled in.
func TestPrometheusTakesTheDashboard(t *testing.T) {
	tool := promtool(t)
	data, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	var rules []map[string]string
	for i, p := range d.Panels {
		for j, q := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*").Replace(q.Expr)
			rules = append(rules, map[string]string{"record": fmt.Sprintf("panel:%d:%d", i, j), "expr": expr})
		}
	}
	file := filepath.Join(t.TempDir(), "rules.json") // JSON is YAML
	data, err = json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "check", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
