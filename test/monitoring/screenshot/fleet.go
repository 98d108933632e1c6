// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	fleetNodes     = 500
	scrapeInterval = 3 * time.Minute
	// rateInterval is what Grafana puts for $__rate_interval: four scrapes.
	rateInterval = 4 * scrapeInterval
)

// fault is what breaks on one node, and since when.
type fault struct {
	node  int
	since time.Duration // before the end
	metric,
	labels string
	value float64
}

// faults are the broken nodes of the simulated fleet.
var faults = []fault{
	{117, 95 * time.Minute, "up", "", 0},
	{203, 40 * time.Minute, "jackfield_nri_connected", "", 0},
	{311, 150 * time.Minute, "jackfield_config_current", "", 0},
	{342, 200 * time.Minute, "jackfield_cdi_files_in_error", "", 2},
	{428, 70 * time.Minute, "jackfield_directory_up", `,directory="/var/run/vhost"`, 0},
	{459, 25 * time.Minute, "jackfield_vswitch_ports_missing", `,vswitch="ovs0"`, 3},
}

// latencyBuckets are those of jackfield_handler_duration_seconds.
var latencyBuckets = []float64{1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, .01, .05, .25, 1, 2, math.Inf(1)}

// handlers are the runtime's calls: how many a second a node gets, and how long they take.
var handlers = []struct {
	name           string
	rate           float64
	median, spread float64 // seconds, and the deviation of the logarithm
}{
	{"CreateContainer", 0.03, 3e-4, 0.8},
	{"RemoveContainer", 0.03, 1.2e-4, 0.7},
	{"RunPodSandbox", 0.02, 6e-5, 0.6},
	{"StateChange", 0.05, 3e-5, 0.5},
}

// node has the counters of one simulated node.
type node struct {
	name     string
	counters map[string]float64 // metric{labels} without job and instance
	devices  int
	files    int
	memory   float64
	busyness float64
}

// writeFleet writes what Prometheus would have scraped from start to end, as OpenMetrics text.
func writeFleet(out io.Writer, start, end time.Time) error {
	w := bufio.NewWriterSize(out, 1<<20)
	random := rand.New(rand.NewPCG(1, 2)) // the picture is the same each time
	nodes := make([]*node, fleetNodes)
	for i := range nodes {
		nodes[i] = &node{name: fmt.Sprintf("node-%03d", i), counters: map[string]float64{}, devices: 8 + 8*random.IntN(4), files: 2 + random.IntN(3),
			memory: 27e6 + 3e6*random.Float64(), busyness: math.Exp(0.4 * random.NormFloat64())}
	}
	// Some nodes with many virtual functions.
	for _, i := range []int{44, 81, 160, 222, 305, 377} {
		nodes[i].devices = 96 + i/10
	}
	for i := 7; i < fleetNodes; i += 50 {
		nodes[i].memory = 33e6 + 2e4*float64(i)
	}
	for at := start; !at.After(end); at = at.Add(scrapeInterval) {
		for i, n := range nodes {
			if err := n.scrape(w, random, i, at, end); err != nil {
				return err
			}
		}
	}
	if _, err := w.WriteString("# EOF\n"); err != nil {
		return err
	}
	return w.Flush()
}

// load is how busy the fleet is: more at the end than at the start, with a rollout an hour before the end.
func load(at, end time.Time) float64 {
	before := end.Sub(at).Minutes()
	return 0.8 + 0.3*math.Sin((360-before)/360*math.Pi) + 1.4*math.Exp(-math.Pow((before-75)/14, 2))
}

func (n *node) scrape(w io.Writer, random *rand.Rand, i int, at, end time.Time) (err error) {
	emit := func(metric, labels string, value float64) {
		if err == nil {
			_, err = fmt.Fprintf(w, "%s{job=\"jackfield\",instance=%q%s} %g %d\n", metric, n.name, labels, value, at.Unix())
		}
	}
	gauge := func(metric, labels string, value float64) {
		for _, f := range faults {
			if f.node == i && f.metric == metric && f.labels == labels && !at.Before(end.Add(-f.since)) {
				value = f.value
			}
		}
		emit(metric, labels, value)
	}
	// count adds what a scrape interval brings at a rate a second, in whole events.
	count := func(metric, labels string, rate float64) int {
		expected := rate * scrapeInterval.Seconds()
		events := int(expected)
		if random.Float64() < expected-float64(events) {
			events++
		}
		n.counters[metric+labels] += float64(events)
		emit(metric, labels, n.counters[metric+labels])
		return events
	}
	broken := func(metric string) bool {
		return slices.ContainsFunc(faults, func(f fault) bool {
			return f.node == i && f.metric == metric && !at.Before(end.Add(-f.since))
		})
	}

	gauge("up", "", 1)
	if broken("up") {
		return err // Prometheus gets nothing else from the node
	}
	busy := load(at, end) * n.busyness
	version := `,version="0.2.0",commit="5c1f0a7",goversion="go1.26.3"`
	if i%10 == 9 { // not upgraded yet
		version = `,version="0.1.1",commit="e93b214",goversion="go1.26.1"`
	}
	runtime := `,runtime="containerd",version="v2.2.1",nri="0.11.0"`
	if i >= 400 {
		runtime = `,runtime="cri-o",version="1.35.0",nri="0.11.0"`
	}
	gauge("jackfield_build_info", version, 1)
	gauge("jackfield_nri_runtime_info", runtime, 1)
	gauge("jackfield_nri_connected", "", 1)
	gauge("jackfield_config_current", "", 1)
	gauge("jackfield_cdi_up", "", 1)
	gauge("jackfield_cdi_files", "", float64(n.files))
	gauge("jackfield_cdi_devices", "", float64(n.devices))
	gauge("jackfield_cdi_files_in_error", "", 0)
	gauge("jackfield_hooks_files_in_error", "", 0)
	gauge("jackfield_audit_up", "", 1)
	gauge("jackfield_directory_up", `,directory="/var/run/vhost"`, 1)
	gauge("jackfield_status_containers", "", float64(12+i%9))
	n.memory += 1e4 * random.NormFloat64()
	gauge("process_resident_memory_bytes", "", n.memory+1e6*load(at, end))

	workers, timeouts := float64(random.IntN(3)), 0.0
	if broken("jackfield_directory_up") { // calls wait for the directory until they time out
		workers, timeouts = 16+float64(random.IntN(6)), 0.05
	}
	gauge("jackfield_workers_busy", "", workers)
	for _, h := range handlers {
		label := fmt.Sprintf(",handler=%q", h.name)
		blocked := 0.0
		if h.name == "CreateContainer" || h.name == "RemoveContainer" {
			blocked = timeouts
		}
		count("jackfield_handler_timeouts_total", label, blocked)
		for range int(h.rate*busy*scrapeInterval.Seconds() + random.Float64()) {
			took := h.median * math.Exp(h.spread*random.NormFloat64()+0.25*load(at, end))
			bucket, _ := slices.BinarySearch(latencyBuckets, took)
			for _, le := range latencyBuckets[bucket:] {
				n.counters[fmt.Sprint(h.name, le)]++
			}
		}
		for _, le := range latencyBuckets {
			text := fmt.Sprint(le)
			if math.IsInf(le, 1) {
				text = "+Inf"
			}
			emit("jackfield_handler_duration_seconds_bucket", label+fmt.Sprintf(",le=%q", text), n.counters[fmt.Sprint(h.name, le)])
		}
	}

	count("jackfield_containers_total", "", 0.03*busy)
	count("jackfield_containers_untouched_total", "", 0.021*busy)
	count("jackfield_containers_timed_out_total", "", timeouts)
	for _, r := range requestRates {
		count("jackfield_requests_total", fmt.Sprintf(",source=\"cdi\",outcome=%q", r.outcome), r.rate*busy)
	}
	count("jackfield_refusals_total", `,rule="tenants"`, 2e-4*busy)
	count("jackfield_refusals_total", `,rule="dpdk-vfs"`, 6e-5*busy)
	count("jackfield_would_refuse_total", "", 1e-4*busy)
	rebinds := 0.0
	if i%25 == 3 && end.Sub(at) > 120*time.Minute && end.Sub(at) < 135*time.Minute { // a vswitch upgrade on some nodes
		rebinds = 0.05
	}
	count("jackfield_socket_rebinds_total", "", rebinds)
	count("jackfield_cleanup_failures_total", "", 0)
	connections := 0.0
	if broken("jackfield_nri_connected") || random.Float64() < 2e-4 {
		connections = 1 / scrapeInterval.Seconds()
	}
	count("jackfield_nri_connections_total", "", connections)
	count("jackfield_audit_dropped_total", "", 0)
	count("jackfield_audit_failures_total", "", 0)

	vswitch := `,vswitch="ovs0"`
	if i%5 == 0 {
		vswitch = `,vswitch="grout"`
	}
	gauge("jackfield_vswitch_up", vswitch, 1)
	missing := broken("jackfield_vswitch_ports_missing")
	ports := float64(2 + i%4)
	if load(at, end) > 1.2 {
		ports++
	}
	gauge("jackfield_vswitch_ports", vswitch, ports)
	gauge("jackfield_vswitch_ports_missing", vswitch, 0)
	recreated, failed := rebinds, 0.0
	if missing {
		failed = 2 / scrapeInterval.Seconds()
	}
	count("jackfield_vswitch_ports_recreated_total", vswitch, recreated)
	count("jackfield_vswitch_errors_total", vswitch, failed)
	return err
}

// requestRates are the requests a second of a node by their outcome.
var requestRates = []struct {
	outcome string
	rate    float64
}{{"injected", 0.008}, {"present", 0.002}, {"unmanaged", 0.0015}, {"skipped", 0.0007}, {"refused", 0.0003}, {"failed", 0.00005}}
