// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	fleetNodes = 500
	// maxLines is how many lines a person can tell apart in a panel.
	maxLines = 20
)

// faultyNodes has a metric of some nodes, and the value that the fault gives it.
var faultyNodes = map[string]string{"n7 up": "0", "n8 jackfield_nri_connected": "0", "n9 jackfield_vswitch_ports_missing": "2", "n10 jackfield_containers_missed": "3"}

// Prometheus evaluates the dashboard for 500 nodes: each panel has few lines, and the first screen names the faulty nodes.
func TestDashboardShowsFaultsOfFleet(t *testing.T) {
	tool := promtool(t)
	data, err := os.ReadFile("../../deploy/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Templating struct {
			List []struct{ Name, AllValue string }
		}
		Panels []struct {
			Title, Type string
			GridPos     struct{ Y int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	sample := func(labels string, value int) map[string]any { return map[string]any{"labels": labels, "value": value} }
	// At first Grafana selects all jobs: by allValue or, without it, by their names.
	jobs := "(jackfield)"
	for _, v := range d.Templating.List {
		if v.Name == "job" && v.AllValue != "" {
			jobs = v.AllValue
		}
	}
	const when = "10m"
	var checks []map[string]any
	var all strings.Builder
	foundTable := false
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$cluster", ".*", "$instance", ".*", "$job", jobs).Replace(q.Expr)
			all.WriteString(expr)
			check := map[string]any{"eval_time": when, "expr": fmt.Sprintf("count(%s) <= bool %d", expr, maxLines), "exp_samples": []any{sample("{}", 1)}}
			switch {
			case p.Title == "Nodes with a fault":
				foundTable = p.GridPos.Y < 10
				check["expr"] = "count by (instance, fault) (" + expr + ")"
				check["exp_samples"] = []any{sample(`{instance="n7",fault="down"}`, 1), sample(`{instance="n8",fault="not registered"}`, 1),
					sample(`{instance="n9",fault="ports missing on vswitch"}`, 1), sample(`{instance="n10",fault="containers without their devices"}`, 1)}
			case p.Title == "Nodes not registered or down":
				check["expr"], check["exp_samples"] = expr, []any{sample("{}", 2)}
			case p.Type == "stat":
				check["expr"] = "count(" + expr + ")"
			}
			checks = append(checks, check)
		}
	}
	if !foundTable {
		t.Error("the first screen has no table of the nodes with a fault")
	}
	file := filepath.Join(t.TempDir(), "fleet.json") // JSON is YAML
	data, err = json.Marshal(map[string]any{"evaluation_interval": "1m", "tests": []any{
		map[string]any{"interval": "1m", "input_series": fleetSeries(all.String()), "promql_expr_test": checks}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%.4000s", err, out)
	}
}

// fleetSeries returns ten minutes of each metric that the queries name, for each node.
func fleetSeries(queries string) []map[string]string {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`([a-z_]+)\{cluster=`).FindAllStringSubmatch(queries, -1) {
		names[m[1]] = true
	}
	// Prometheus also scrapes other programs, one of which is down.
	series := []map[string]string{{"series": `up{job="other",instance="n0"}`, "values": "0x10"}}
	for node := range fleetNodes {
		for name := range names {
			value := "1"
			switch {
			case strings.HasSuffix(name, "_failures_total"):
				value = "0"
			case strings.HasSuffix(name, "_total"), strings.HasSuffix(name, "_bucket"):
				value = "0+10x10"
			case strings.HasSuffix(name, "_in_error"), strings.HasSuffix(name, "_missing"), strings.HasSuffix(name, "_missed"):
				value = "0"
			}
			if fault, ok := faultyNodes[fmt.Sprintf("n%d %s", node, name)]; ok {
				value = fault
			}
			if !strings.Contains(value, "x") {
				value += "x10"
			}
			for _, handler := range []string{"CreateContainer", "RemoveContainer", "Synchronize"} {
				labels := fmt.Sprintf(`job="jackfield",instance="n%d"`, node)
				switch {
				case strings.HasPrefix(name, "jackfield_handler_"):
					labels += fmt.Sprintf(`,handler=%q,le="+Inf"`, handler)
				case strings.HasPrefix(name, "jackfield_vswitch_"):
					labels += `,vswitch="ovs0"`
				case name == "jackfield_requests_total":
					labels += `,outcome="injected"`
				case name == "jackfield_refusals_total":
					labels += `,rule="tenants"`
				case name == "jackfield_directory_up":
					labels += `,directory="/run/cni"`
				}
				series = append(series, map[string]string{"series": name + "{" + labels + "}", "values": value})
				if !strings.HasPrefix(name, "jackfield_handler_") {
					break
				}
			}
		}
	}
	return series
}
