// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"

	"github.com/jackfield/jackfield/internal/base/testkit"
	"github.com/jackfield/jackfield/internal/engine"
	"github.com/jackfield/jackfield/internal/report/outcome"
	"github.com/jackfield/jackfield/internal/report/telemetry"
)

// A pod's author chooses how many optional requests fail, but not how many lines are logged.
func TestLogLinesOfOneContainerAreBounded(t *testing.T) {
	buf := &logBuffer{}
	log := logrus.New()
	log.SetOutput(buf)
	items := make([]engine.Item, 1000)
	for i := range items {
		items[i] = engine.Item{Request: fmt.Sprintf("request %d.", i), Outcome: engine.Skipped,
			Reason: "not found", Audit: "refused"}
	}
	items = append(items, engine.Item{Request: "injected", Outcome: engine.Injected, Notes: make([]string, 100)})
	logPlan(logrus.NewEntry(log), items)
	text := buf.String()
	if n := strings.Count(text, "\n"); n != outcome.MaxLines+2 {
		t.Errorf("the log has %d lines, want the first %d, one for the others, and one for the injected request",
			n, outcome.MaxLines)
	}
	for _, want := range []string{"request 0.", "request 7.", "2084 more lines", "injected from"} {
		if !strings.Contains(text, want) {
			t.Errorf("the log does not have %q", want)
		}
	}
}

// Metrics count a request by its kind, not by its text.
func TestRequestsAreCountedByTheirKind(t *testing.T) {
	h := newReloadHost(t, granting, false)
	for kind, want := range map[engine.RequestKind]telemetry.Source{
		engine.KindCDI: "cdi", engine.KindNetwork: "network", engine.KindResource: "resource",
		engine.KindHook: "hook", engine.KindDeviceInjector: "device-injector",
	} {
		h.p.outcomes.countItems([]engine.Item{
			{Kind: kind, Request: `CDI device "vendor.com/net=a"`, Outcome: engine.Unmanaged}})
		got := exposedValue(t, h.p, "jackfield_requests_total", "unmanaged", string(want))
		if got != 1 || string(want) != string(kind) {
			t.Errorf("%s is counted %v times as %s, want once", kind, got, want)
		}
	}
}

// exposedValue returns the value of a counter with the given label values, in the order of the
// labels' names.
func exposedValue(t *testing.T, p *Plugin, name string, labels ...string) float64 {
	t.Helper()
	families, err := telemetry.NewGatherer(p.counters, p.endpoints.takeSample).Gather()
	testkit.Must(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if f.GetName() == name && slices.Equal(values, labels) {
				return m.GetCounter().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s with %q", name, labels)
	return 0
}

// A request of a kind without a source would count as a failure of the container.
func TestEachKindOfRequestIsCounted(t *testing.T) {
	for _, kind := range []engine.RequestKind{engine.KindCDI, engine.KindNetwork, engine.KindResource, engine.KindClaim,
		engine.KindSocket, engine.KindHook, engine.KindDeviceInjector} {
		c := telemetry.NewCounters()
		c.CountRequest(telemetry.Source(kind), telemetry.Present)
		if c.Requests(telemetry.Present) != 1 || c.Requests(telemetry.Failed) != 0 {
			t.Errorf("%s is counted as something else", kind)
		}
	}
}

// A container that is refused again has no second line in the log and the audit file.
func TestRefusedContainerIsLoggedOnce(t *testing.T) {
	h := newReloadHost(t, refusing, false)
	for range 3 {
		if err := h.create(); err == nil {
			t.Fatal("the container is created")
		}
	}
	if n := strings.Count(h.log.String(), "container refused"); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}
