// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/internal/report/telemetry"
	"github.com/jackfield/jackfield/pkg/cdi"
	"github.com/jackfield/jackfield/test/parts"
)

// promtool returns the path of promtool from Debian's package of Prometheus. Without a Debian archive
// it skips the test, except in CI, which has one.
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

func TestPromtoolAcceptsRules(t *testing.T) {
	tool := promtool(t)
	out, err := exec.Command(tool, "check", "rules", "--lint-fatal", "../../deploy/monitoring/alerts.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// promtool evaluates the alerts at given values.
	out, err = exec.Command(tool, "test", "rules", "testdata/alerts_test.yaml").CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !bytes.Contains(out, []byte("SUCCESS")) {
		t.Errorf("promtool ran no test:\n%s", out)
	}
}

func TestPromtoolAcceptsMetrics(t *testing.T) {
	tool := promtool(t)
	c := telemetry.NewCounters()
	c.RefusedBy.Add(`a "rule" with \ and` + "\n" + `a second line`)
	c.RefusedBy.Add("not UTF-8: \xff")
	c.Observe(telemetry.CreateContainer, 3*time.Millisecond)
	c.Observe(telemetry.CreateContainer, time.Minute)
	c.CountRequest("cdi", telemetry.Refused)
	s := telemetry.Sample{Version: "v1", Node: status.Node{Runtime: &status.Runtime{Name: "containerd", Version: "v2", NRI: "0.8.0"}}, CDI: &cdi.Stats{Files: 3}}
	reply := httptest.NewRecorder()
	promhttp.HandlerFor(telemetry.NewGatherer(c, func() *telemetry.Sample { return &s }), promhttp.HandlerOpts{}).ServeHTTP(reply, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := reply.Body.Bytes()
	cmd := exec.Command(tool, "check", "metrics")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, text)
	}
	for _, want := range []string{
		`jackfield_requests_total{outcome="refused",source="cdi"} 1`,
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

func TestEveryMonitoringFileIsTested(t *testing.T) {
	files, err := filepath.Glob("../../deploy/monitoring/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch filepath.Base(f) {
		case "alerts.yaml", "dashboard.json", "README.md":
		default:
			t.Errorf("no test covers %s", f)
		}
	}
}

// promtool checks the dashboard's queries as rules, with values for Grafana's variables.
func TestPromtoolAcceptsDashboardQueries(t *testing.T) {
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
