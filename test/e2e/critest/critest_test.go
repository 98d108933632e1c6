// SPDX-License-Identifier: Apache-2.0

package critest

import (
	"cmp"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackfield/jackfield/test/compatibility"
	"github.com/jackfield/jackfield/test/e2e"
	"github.com/jackfield/jackfield/test/e2e/jail"
	"github.com/jackfield/jackfield/test/e2e/node"
)

const config = `
policy:
  rules:
    - name: dpdk-tenants
      for:   {namespaces: ["dpdk-*"]}
      allow: {cdi: ["vendor.com/net=*"]}
`

const (
	// selection are the specs that run by default: those of NRI.
	selection = `\[k8s\.io\] NRI `
	// focusEnv selects other specs by a regular expression; "." selects all.
	focusEnv = "JACKFIELD_CRITEST_FOCUS"
)

// Each spec of critest has the same result with Jackfield's plugin as without, and a spec that a runtime fails by
// itself is listed with its reason.
func TestSpecsHaveSameResultsWithPlugin(t *testing.T) {
	e2e.Require(t)
	focus := cmp.Or(os.Getenv(focusEnv), selection)
	for _, g := range node.Generations() {
		t.Run(string(g), func(t *testing.T) {
			h := critestNode(t, g)
			without := runSpecs(t, h, focus)
			plugin := h.StartPlugin(node.PluginOptions{Config: config})
			with := runSpecs(t, h, focus)
			var differ []string
			for name, r := range without {
				if !r.equal(with[name]) {
					differ = append(differ, name)
				}
			}
			// A busy machine can exceed a time limit of a spec, so a difference counts if it shows again.
			if len(differ) > 0 {
				again := exactly(differ)
				maps.Copy(with, runSpecs(t, h, again))
				_ = plugin.Stop(node.Patience)
				maps.Copy(without, runSpecs(t, h, again))
			}
			compare(t, g, without, with)
		})
	}
}

// critestNode returns a node whose images come from a registry of the test.
func critestNode(t *testing.T, g node.Generation) *e2e.H {
	t.Helper()
	images, err := newRegistry(e2e.Kit(t))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(images)
	t.Cleanup(server.Close)
	o := node.Options{Generation: g, Mirror: strings.TrimPrefix(server.URL, "http://"), InfraContainers: true,
		NewRunc: e2e.Kit(t).NewRunc != ""}
	if g == node.CRIOCrun {
		// Specs need the controller cpu, which version 2 of cgroups lacks on a machine with both versions.
		o.Generation, o.Crun = node.CRIO, true
	}
	h := e2e.Fresh(t, o)
	stop, err := serveProxy(proxySocket(h), h.Socket(), jail.CgroupParent()+"/critest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// proxySocket returns the path of the socket that critest calls.
func proxySocket(h *e2e.H) string { return h.Dir() + "/proxy.sock" }

// runSpecs runs the specs that match a regular expression and returns their results.
func runSpecs(t *testing.T, h *e2e.H, focus string) map[string]result {
	t.Helper()
	dir, err := os.MkdirTemp("", "critest") // specs leave mounts there, which end with the jail
	if err != nil {
		t.Fatal(err)
	}
	report := filepath.Join(dir, "report.json")
	cmd := h.Command(os.Getenv(programEnv), "-runtime-endpoint", "unix://"+proxySocket(h),
		"-image-endpoint", "unix://"+proxySocket(h), "-nri-socket", h.NRISocket(), "-ginkgo.focus", focus, "-ginkgo.seed", "1",
		"-ginkgo.timeout", "1h", "-ginkgo.no-color", "-ginkgo.json-report", report)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + cmd.Dir, "TMPDIR=" + cmd.Dir}
	// The status is 1 if a spec fails.
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	results, err := readReport(report)
	if err != nil {
		t.Fatalf("%v\n%s", err, node.Tail(string(out), 40))
	}
	for name, r := range results {
		if r.State == "skipped" && r.Message == "" {
			delete(results, name) // not in focus
		}
	}
	return results
}

// exactly returns a regular expression that matches the specs.
func exactly(specs []string) string {
	quoted := make([]string, len(specs))
	for i, name := range specs {
		quoted[i] = regexp.QuoteMeta(name) + "$"
	}
	return strings.Join(quoted, "|")
}

// compare reports specs whose results differ, and failures that are not listed.
func compare(t *testing.T, g node.Generation, without, with map[string]result) {
	t.Helper()
	count := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(without)) {
		r := without[name]
		switch {
		case !r.equal(with[name]):
			count["different"]++
			t.Errorf("%s\nwithout the plugin: %s\nwith: %s", name, r, with[name])
		case r.failed() && compatibility.CritestFailure(g, name) == "":
			t.Errorf("%s fails with and without the plugin, and package compatibility has no reason: %s", name, r)
		}
		count[r.outcome()]++
	}
	if len(without) == 0 || len(with) != len(without) {
		t.Errorf("%d specs ran without the plugin, and %d with it", len(without), len(with))
	}
	t.Logf("%s: %d specs, %d passed, %d skipped, %d failed by the runtime, %d different with the plugin",
		g, len(without), count["passed"], count["skipped"], count["failed"], count["different"])
}
