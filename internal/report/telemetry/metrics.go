// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/jackfield/jackfield/internal/host/dircheck"
	"github.com/jackfield/jackfield/internal/port/vswitch"
	"github.com/jackfield/jackfield/internal/report/status"
	"github.com/jackfield/jackfield/pkg/cdi"
)

// Sample is the state at the time of a scrape.
type Sample struct {
	Node                status.Node // without its sockets
	Version, Commit     string      // of the program; the commit is "" where the build does not know it
	ConfigRejected      uint64      // new configurations that were rejected
	CDI                 *cdi.Stats  // nil while a directory is unresponsive
	Staged, Sockets     int         // containers with a staging directory, and host sockets bound in them
	Workers, WorkersMax int
	AuditWritable       bool
	Directories         []dircheck.Directory
	Hooks, HooksInError uint64 // of hooks.d: usable hooks, and unusable files and directories
}

// Family is one metric: its name, its type (counter, gauge or histogram) and its
// explanation.
type Family struct{ Name, Type, Help string }

// The families that collect themselves.
var (
	handlerDuration = Family{"jackfield_handler_duration_seconds", histogram, "Time that the runtime's calls took."}
	handlerTimeouts = Family{"jackfield_handler_timeouts_total", counter,
		"Calls answered before their work was done, because a file system or socket of the host was unresponsive."}
)

const counter, gauge, histogram = "counter", "gauge", "histogram"

// metric is a family with its labels and its values at the time of a scrape.
type metric struct {
	Family
	labels []string
	values []value
}

// value is one value of a metric, with the values of its labels.
type value struct {
	number float64
	labels []string
}

// one returns a single value.
func one[N int | uint64 | float64](n N, labels ...string) []value {
	return []value{{float64(n), labels}}
}

// boolValue returns a gauge of 1 or 0.
func boolValue(set bool, labels ...string) []value {
	if set {
		return one(1, labels...)
	}
	return one(0, labels...)
}

// processFamilies are the metrics of the process and the Go runtime that are exposed.
var processFamilies = []Family{
	{"process_resident_memory_bytes", gauge, "Resident memory size in bytes."},
	{"process_open_fds", gauge, "Number of open file descriptors."},
	{"process_cpu_seconds_total", counter, "Total user and system CPU time spent in seconds."},
	{"process_start_time_seconds", gauge, "Start time of the process since unix epoch in seconds."},
	{"go_goroutines", gauge, "Number of goroutines that currently exist."},
}

// Families returns all metrics, in the order of the reference page.
func Families() []Family {
	var out []Family
	for _, m := range metrics(NewCounters(), &Sample{}) {
		out = append(out, m.Family)
	}
	return append(out, processFamilies...)
}

// NewGatherer returns the registry of the counters, of the samples, and of the
// process. sample is called once a scrape.
func NewGatherer(c *Counters, sample func() *Sample) prometheus.Gatherer {
	registry := prometheus.NewRegistry()
	registry.MustRegister(&collector{c, sample}, c.duration, c.timeouts,
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), collectors.NewGoCollector())
	families := Families()
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		all, err := registry.Gather()
		// The collectors of the process and of Go have dozens more.
		return slices.DeleteFunc(all, func(m *dto.MetricFamily) bool {
			return !slices.ContainsFunc(families, func(f Family) bool { return f.Name == m.GetName() })
		}), err
	})
}

// collector collects the counters and the sample.
type collector struct {
	counters *Counters
	sample   func() *Sample
}

// Describe implements prometheus.Collector. It describes nothing: the registry checks the metrics
// at each scrape.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, m := range metrics(c.counters, c.sample()) {
		desc, kind := prometheus.NewDesc(m.Name, m.Help, m.labels, nil), prometheus.GaugeValue
		if m.Type == counter {
			kind = prometheus.CounterValue
		}
		for _, v := range m.values {
			out <- prometheus.MustNewConstMetric(desc, kind, v.number, v.labels...)
		}
	}
}

// metrics returns the metrics of Jackfield itself, in the order of the reference page.
func metrics(c *Counters, s *Sample) []metric {
	return slices.Concat(pluginMetrics(c, s), fileMetrics(s), stagingMetrics(c, s), vswitchMetrics(s.Node.Vswitches),
		outputMetrics(c, s))
}

// pluginMetrics returns the metrics of the plugin, of the runtime's calls, and of the configuration.
func pluginMetrics(c *Counters, s *Sample) []metric {
	var runtimeInfo, directories []value
	if r := s.Node.Runtime; r != nil {
		runtimeInfo = one(1, r.Name, r.Version, r.NRI)
	}
	for _, d := range s.Directories {
		directories = append(directories, boolValue(d.Since.IsZero(), d.Path, d.Use)...)
	}
	return []metric{
		{Family{"jackfield_build_info", gauge, "The build, in the labels version, commit and goversion: always 1."},
			[]string{"version", "commit", "goversion"}, one(1, s.Version, s.Commit, runtime.Version())},

		{Family{"jackfield_nri_connected", gauge, "1 while the plugin is registered with the runtime."}, nil,
			boolValue(s.Node.Registered)},
		{Family{"jackfield_nri_connections_total", counter, "Registrations with the runtime."}, nil,
			one(c.Connections.Load())},
		{Family{"jackfield_nri_runtime_info", gauge, "The runtime of the last registration and its NRI version: always 1."},
			[]string{"runtime", "version", "nri"}, runtimeInfo},

		{Family{"jackfield_containers_total", counter, "Containers whose creation the runtime reported."}, nil,
			one(c.Containers.Load())},
		{Family{"jackfield_containers_untouched_total", counter, "Containers without a request."}, nil,
			one(c.Untouched.Load())},
		{Family{"jackfield_containers_timed_out_total", counter, "Containers refused at the runtime's deadline."}, nil,
			one(c.TimedOut.Load())},
		{Family{"jackfield_requests_total", counter, "Requests by source and outcome."}, []string{"source", "outcome"},
			c.requestValues()},
		{Family{"jackfield_refusals_total", counter, "Refusals by policy rule."},
			[]string{"rule"}, c.RefusedBy.values()},
		{Family{"jackfield_would_refuse_total", counter, "Requests granted in mode audit that mode enforce would refuse."},
			nil, one(c.Audited.Load())},

		{handlerDuration, nil, nil},
		{handlerTimeouts, nil, nil},
		{Family{"jackfield_workers_busy", gauge, "Goroutines that work on calls of the runtime, including blocked ones."},
			nil, one(s.Workers)},
		{Family{"jackfield_workers_max", gauge, "Limit of busy workers, at which calls are refused."}, nil,
			one(s.WorkersMax)},
		{Family{"jackfield_directory_up", gauge, "1 while the file system of a configured directory responds, otherwise 0."},
			[]string{"directory", "use"}, directories},
		{Family{"jackfield_panics_total", counter, "Panics that were recovered; each is in the log with its stack."}, nil,
			one(c.Panics.Load())},

		{Family{"jackfield_config_generation", gauge, "Grows with each configuration that comes into force."}, nil,
			one(s.Node.Config.Generation)},
		{Family{"jackfield_config_current", gauge, "1 while the configuration in force is the newest one; 0 while a newer " +
			"one is rejected."}, nil, boolValue(s.Node.Config.Error == "")},
		{Family{"jackfield_config_rejected_total", counter, "New configurations that were rejected."}, nil,
			one(s.ConfigRejected)},
	}
}

// fileMetrics returns the metrics of CDI files and of hooks.d directories.
func fileMetrics(s *Sample) []metric {
	cdi := cmp.Or(s.CDI, &cdi.Stats{})
	count := func(n int) []value {
		if s.CDI == nil {
			return nil
		}
		return one(n)
	}
	return []metric{
		{Family{"jackfield_cdi_up", gauge, "1 while the CDI directories answer; the other CDI metrics are exposed only " +
			"then."}, nil, boolValue(s.CDI != nil)},
		{Family{"jackfield_cdi_files", gauge, "CDI specification files."}, nil, count(cdi.Files)},
		{Family{"jackfield_cdi_files_in_error", gauge, "CDI specification files that are invalid or conflict with others."},
			nil, count(cdi.FilesInError)},
		{Family{"jackfield_cdi_directories_in_error", gauge, "CDI directories that exist and cannot be read."}, nil,
			count(cdi.DirsInError)},
		{Family{"jackfield_cdi_devices", gauge, "CDI devices that can be requested."}, nil, count(cdi.Devices)},

		{Family{"jackfield_hooks", gauge, "Hooks of hooks.d directories that can be injected."}, nil, one(s.Hooks)},
		{Family{"jackfield_hooks_files_in_error", gauge, "Files and directories of hooks.d that cannot be used."}, nil,
			one(s.HooksInError)},
	}
}

// stagingMetrics returns the metrics of the containers' sockets and directories.
func stagingMetrics(c *Counters, s *Sample) []metric {
	return []metric{
		{Family{"jackfield_staging_mode", gauge, "How sockets are delivered: 1 for the mode in force."}, []string{"mode"},
			stagingModes(s.Node.Staging)},
		{Family{"jackfield_staging_containers", gauge, "Containers that have a staging directory."}, nil, one(s.Staged)},
		{Family{"jackfield_staging_sockets", gauge, "Host sockets that are bound in staging directories."}, nil,
			one(s.Sockets)},
		{Family{"jackfield_staging_failures_total", counter, "Failures to watch or update the sockets and networks of " +
			"running containers."}, nil, one(c.StagingFailed.Load())},
		{Family{"jackfield_hotplugs_total", counter, "Updates of running containers whose networks changed."}, nil,
			one(c.HotPlugs.Load())},
		{Family{"jackfield_status_containers", gauge, "Running containers that have something injected."}, nil,
			one(len(s.Node.Containers))},
		{Family{"jackfield_containers_missed", gauge, "Running containers that lack what they requested."}, nil,
			one(len(s.Node.Missed))},
		{Family{"jackfield_device_numbers_reused", gauge,
			"Device numbers of running containers that lead to another device " +
				"than the container was given."}, nil, one(len(s.Node.ReusedNumbers))},
		{Family{"jackfield_status_failures_total", counter, "Container records that could not be written or read: " +
			"jackfield status loses the container at a restart."}, nil, one(c.StatusFailed.Load())},
		{Family{"jackfield_socket_rebinds_total", counter, "Sockets rebound in running containers."}, nil,
			one(c.Rebinds.Load())},
		{Family{"jackfield_cleanup_failures_total", counter, "Removals of a container's or pod's state that left something " +
			"behind."}, nil, one(c.CleanupFailed.Load())},
	}
}

// vswitchMetrics returns the metrics of vswitches. They have series only for configured vswitches.
func vswitchMetrics(vswitches []vswitch.Status) []metric {
	var up, ports, missing, recreated, removed, failures []value
	for i := range vswitches {
		v := &vswitches[i]
		up = append(up, boolValue(v.Answering, v.Name)...)
		ports = append(ports, one(v.Ports, v.Name)...)
		missing = append(missing, one(v.Missing, v.Name)...)
		recreated = append(recreated, one(v.Recreated, v.Name)...)
		removed = append(removed, one(v.Removed, v.Name)...)
		failures = append(failures, one(v.Errors, v.Name)...)
	}
	labels := []string{"vswitch"}
	return []metric{
		{Family{"jackfield_vswitch_up", gauge, "1 if the last check of a configured vswitch succeeded, otherwise 0."}, labels,
			up},
		{Family{"jackfield_vswitch_ports", gauge, "Ports of living pods on a vswitch."}, labels, ports},
		{Family{"jackfield_vswitch_ports_missing", gauge, "Lost ports of living pods that were not re-created yet."}, labels,
			missing},
		{Family{"jackfield_vswitch_ports_recreated_total", counter, "Lost ports of living pods that were re-created."},
			labels, recreated},
		{Family{"jackfield_vswitch_ports_removed_total", counter, "Removed ports of deleted pods."}, labels, removed},
		{Family{"jackfield_vswitch_errors_total", counter, "Failures to list, create or remove ports of a vswitch."}, labels,
			failures},
	}
}

// outputMetrics returns the metrics of the audit file and the log.
func outputMetrics(c *Counters, s *Sample) []metric {
	return []metric{
		{Family{"jackfield_audit_up", gauge, "1 while the audit file can be written or none is configured."}, nil,
			boolValue(s.AuditWritable)},
		{Family{"jackfield_audit_lines_total", counter, "Lines written to the audit file."}, nil, one(c.AuditLines.Load())},
		{Family{"jackfield_audit_dropped_total", counter, "Lines dropped because the audit file was too slow."}, nil,
			one(c.AuditDropped.Load())},
		{Family{"jackfield_audit_failures_total", counter, "Lines lost because the audit file could not be written."}, nil,
			one(c.AuditFailed.Load())},
		{Family{"jackfield_log_dropped_total", counter, "Log lines dropped because the reader of standard error was too " +
			"slow."}, nil, one(c.LogDropped.Load())},
	}
}

// stagingModes returns a value for every mode, so that a rule can ask for one that is not in force.
func stagingModes(inForce string) []value {
	if inForce == "" {
		return nil
	}
	return append(boolValue(inForce == "mount", "mount"), boolValue(inForce == "directory", "directory")...)
}
