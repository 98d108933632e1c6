// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// metric matches names of metrics that the program may expose.
var metric = regexp.MustCompile(`\b(?:jackfield_[a-z0-9_]+|process_[a-z0-9_]+|go_[a-z0-9_]+)\b`)

// exposedNames returns the names under which Prometheus stores the program's metrics.
func exposedNames() map[string]bool {
	names := map[string]bool{}
	for _, f := range telemetry.Families() {
		names[f.Name] = true
		if f.Type == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				names[f.Name+suffix] = true
			}
		}
	}
	return names
}

func TestEveryNamedMetricIsExposed(t *testing.T) {
	names := exposedNames()
	for _, file := range []string{"../../deploy/monitoring/alerts.yaml", "../../deploy/monitoring/dashboard.json", "../../docs/reference/metrics-alerts.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		found := metric.FindAllString(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s names no metric", file)
		}
		for _, name := range found {
			if !names[name] && !names[strings.TrimSuffix(name, "_")] {
				t.Errorf("%s: the metric %s does not exist", file, name)
			}
		}
	}
}

// The page has a list of the program's metrics, in the same order and words, each sentence on a line of its own.
func TestPageListsEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/metrics-alerts.md")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range telemetry.Families() {
		if f.Type == "histogram" && f.Name != "jackfield_handler_duration_seconds" {
			t.Errorf("the page does not name the histogram %s", f.Name)
		}
		b.WriteString("- `" + f.Name + "`: " + strings.ReplaceAll(f.Help, ". ", ".\n  ") + "\n")
	}
	if !strings.Contains(string(text), b.String()) {
		t.Errorf("docs/reference/metrics-alerts.md does not have this list:\n%s", b.String())
	}
}

func TestMetricNamesFollowConventions(t *testing.T) {
	var seen []string
	for _, f := range telemetry.Families() {
		if slices.Contains(seen, f.Name) {
			t.Errorf("%s is listed twice", f.Name)
		}
		seen = append(seen, f.Name)
		if !strings.HasSuffix(f.Help, ".") {
			t.Errorf("%s: the help %q is no sentence", f.Name, f.Help)
		}
		if (f.Type == "counter") != strings.HasSuffix(f.Name, "_total") {
			t.Errorf("%s is a %s", f.Name, f.Type)
		}
	}
}

// Each alert has a line in the runbook, and its runbook_url links to the section.
func TestEveryAlertIsInTheRunbook(t *testing.T) {
	text, err := os.ReadFile("../../deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	const pages = "https://github.com/jackfield/jackfield/blob/main/"
	for _, rule := range file.Groups[0].Rules {
		path, anchor, _ := strings.Cut(strings.TrimPrefix(rule.Annotations["runbook_url"], pages), "#")
		page, err := os.ReadFile(filepath.Join("../..", path))
		if err != nil {
			t.Errorf("%s: runbook_url: %v", rule.Alert, err)
			continue
		}
		_, section, ok := strings.Cut(string(page), "\n## "+strings.ToUpper(anchor[:1])+anchor[1:]+"\n")
		if section, _, _ = strings.Cut(section, "\n## "); !ok || !strings.Contains(section, "`"+rule.Alert+"`") {
			t.Errorf("%s has no line in %s#%s", rule.Alert, path, anchor)
		}
	}
}

// Grafana can import the dashboard: each panel has queries and a position.
func TestDashboardIsComplete(t *testing.T) {
	data, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title         string
		UID           string
		SchemaVersion int
		Panels        []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr, RefID string }

			FieldConfig struct {
				Defaults struct {
					Thresholds struct{ Steps []struct{ Color string } }
				}
			}
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion < 36 || len(d.Panels) < 8 {
		t.Errorf("title %q, uid %q, schema %d, %d panels", d.Title, d.UID, d.SchemaVersion, len(d.Panels))
	}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.Title == "" || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q at %+v", p.ID, p.Title, p.GridPos)
		}
		ids[p.ID] = true
		if p.Type == "stat" && len(p.FieldConfig.Defaults.Thresholds.Steps) == 0 {
			t.Errorf("panel %q has no thresholds", p.Title)
		}
		if len(p.Targets) == 0 {
			t.Errorf("panel %q has no query", p.Title)
		}
		for _, q := range p.Targets {
			if q.Expr == "" || q.RefID == "" {
				t.Errorf("panel %q has the query %+v", p.Title, q)
			}
			if selectors := strings.Count(q.Expr, "{"); selectors == 0 || selectors != strings.Count(q.Expr, `{cluster=~"$cluster",job=~"$job",instance=~"$instance"`) {
				t.Errorf("panel %q does not select the chosen clusters, jobs and nodes: %s", p.Title, q.Expr)
			}
		}
	}
}

// What goes wrong without a word in the pods' events is on a panel.
func TestDashboardShowsSilentFailures(t *testing.T) {
	data, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, metric := range []string{"jackfield_containers_missed", "jackfield_staging_mode", "jackfield_staging_failures_total", "jackfield_config_current"} {
		if !strings.Contains(string(data), metric+"{") {
			t.Errorf("no panel has %s", metric)
		}
	}
}

// The picture of the dashboard in the documentation shows the panels that the dashboard has. If not, run make screenshot.
func TestPictureShowsDashboard(t *testing.T) {
	var d struct{ Panels []struct{ Title string } }
	var drawn []string
	for file, to := range map[string]any{"../../deploy/monitoring/dashboard.json": &d, "screenshot/panels.json": &drawn} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, to); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	var titles []string
	for _, p := range d.Panels {
		titles = append(titles, p.Title)
	}
	if !slices.Equal(titles, drawn) {
		t.Errorf("docs/images/dashboard.png shows the panels\n%q, the dashboard has\n%q; run make screenshot", drawn, titles)
	}
	picture, err := os.Stat("../../docs/images/dashboard.png")
	if err != nil {
		t.Fatal(err)
	}
	if picture.Size() > 300<<10 {
		t.Errorf("docs/images/dashboard.png has %d bytes, which is much for a page", picture.Size())
	}
}
