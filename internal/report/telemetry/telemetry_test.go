// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/jackfield/jackfield/internal/host/dircheck"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// gather returns the exposed families by name.
func gather(t *testing.T, c *Counters, s *Sample) map[string]*dto.MetricFamily {
	t.Helper()
	all, err := NewGatherer(c, func() *Sample { return s }).Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]*dto.MetricFamily)
	for _, m := range all {
		out[m.GetName()] = m
	}
	return out
}

// Requests are the sum over the sources of what the metrics expose.
func TestRequestsAreCountedByOutcome(t *testing.T) {
	c := NewCounters()
	c.CountRequest("network", Unmanaged)
	c.CountRequest("cdi", Unmanaged)
	if n := c.Requests(Unmanaged); n != 2 {
		t.Errorf("found %d requests, want 2", n)
	}
	sum, series := 0.0, gather(t, c, &Sample{})["jackfield_requests_total"].GetMetric()
	for _, m := range series {
		sum += m.GetCounter().GetValue()
	}
	if sum != 2 || len(series) != 7*6+2 {
		t.Errorf("the metrics have %v requests in %d series, want 2 in 44", sum, len(series))
	}
}

func TestHandlerDurationBuckets(t *testing.T) {
	c := NewCounters()
	for _, d := range []time.Duration{0, 10 * time.Microsecond, 10*time.Microsecond + 1, time.Second, 3 * time.Second} {
		c.Observe(CreateContainer, d)
	}
	m := gather(t, c, &Sample{})[handlerDuration.Name]
	if len(m.GetMetric()) != len(handlers) {
		t.Errorf("%d handlers, want %d", len(m.GetMetric()), len(handlers))
	}
	i := slices.IndexFunc(m.GetMetric(), func(m *dto.Metric) bool { return m.GetLabel()[0].GetValue() == "CreateContainer" })
	h := m.GetMetric()[i].GetHistogram()
	if h.GetSampleCount() != 5 || len(h.GetBucket()) != 14 {
		t.Fatalf("%d samples in %d buckets", h.GetSampleCount(), len(h.GetBucket()))
	}
	for i, want := range []struct {
		bound float64
		count uint64
	}{{1e-5, 2}, {2.5e-5, 3}, {5e-5, 3}, {1e-4, 3}, {2.5e-4, 3}, {5e-4, 3}, {1e-3, 3}, {2.5e-3, 3}, {5e-3, 3}, {.01, 3}, {.05, 3}, {.25, 3}, {1, 4}, {2, 4}} {
		if b := h.GetBucket()[i]; b.GetUpperBound() != want.bound || b.GetCumulativeCount() != want.count {
			t.Errorf("bucket %d: found %v with %d, want %v with %d", i, b.GetUpperBound(), b.GetCumulativeCount(), want.bound, want.count)
		}
	}
}

func TestRulesAreBounded(t *testing.T) {
	var r RuleCounter
	for i := range 3 * maxRules {
		r.Add(fmt.Sprint(i))
	}
	sum, n := 0.0, 0
	for _, v := range r.values() {
		sum += v.number
		n++
	}
	if sum != 3*maxRules || n != maxRules+1 || r.counts[otherRules] != 2*maxRules {
		t.Errorf("%d rules, %v in all, %d others", n, sum, r.counts[otherRules])
	}
}

func TestUnknownValuesAreLeftOut(t *testing.T) {
	got := gather(t, NewCounters(), &Sample{})
	for _, name := range []string{"jackfield_cdi_files", "jackfield_nri_runtime_info", "jackfield_staging_mode"} {
		if got[name] != nil {
			t.Errorf("%s is exposed: %v", name, got[name])
		}
	}
	if up := got["jackfield_cdi_up"]; up == nil || up.GetMetric()[0].GetGauge().GetValue() != 0 {
		t.Errorf("jackfield_cdi_up: %v", up)
	}
}

// Every family is exposed with its type and help, and nothing else is: not the dozens of
// other metrics of the process and of Go.
func TestFamiliesAreWhatIsExposed(t *testing.T) {
	c := NewCounters()
	c.RefusedBy.Add("rule")
	got := gather(t, c, &Sample{CDI: &cdi.Stats{}, Directories: []dircheck.Directory{{Path: "/etc/cdi"}},
		Node: status.Node{Runtime: &status.Runtime{Name: "containerd"}, Staging: "mount", Vswitches: []vswitch.Status{{Name: "ovs0"}}}})
	kinds := map[string]dto.MetricType{counter: dto.MetricType_COUNTER, gauge: dto.MetricType_GAUGE, histogram: dto.MetricType_HISTOGRAM}
	for _, f := range Families() {
		m := got[f.Name]
		if m == nil || m.GetType() != kinds[f.Type] || m.GetHelp() != f.Help {
			t.Errorf("%s: found %v %q, want %s %q", f.Name, m.GetType(), m.GetHelp(), f.Type, f.Help)
		}
		delete(got, f.Name)
	}
	for name := range got {
		t.Errorf("%s is exposed", name)
	}
}

// The library's default registry belongs to no single plugin of a process.
func TestDefaultRegistryIsNotUsed(t *testing.T) {
	NewGatherer(NewCounters(), func() *Sample { return &Sample{} })
	all, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if m.GetName() == "jackfield_containers_total" {
			t.Error("the default registry has Jackfield's metrics")
		}
	}
}
