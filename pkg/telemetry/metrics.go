// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"runtime"
)

// Sample is what is looked at when metrics are asked for, and not counted.
type Sample struct {
	Version, Commit                   string // of the program; the commit is "" where the build does not know it
	Connected                         bool   // registered with a runtime now
	Runtime, RuntimeVersion, NRI      string // the runtime it was last registered with; "" for none yet
	ConfigGeneration                  uint64 // from 1; grows with each configuration that comes into force
	ConfigRefused                     uint64 // new configurations that were not taken
	ConfigCurrent                     bool   // the newest configuration there is, is the one in force
	CDI                               CDI
	Staged, Sockets, StatusContainers uint64 // containers with staging, sockets of the host bound in them, containers that status tells of
	Missed                            uint64 // containers that were created without the plugin, and lack what they asked for
	StagingMode                       string // "mount" or "directory"; "" where it is not known
	Workers, WorkersMax               uint64
	AuditWritable                     bool
	Directories                       []Directory
	Hooks, HooksInError               uint64 // of hooks.d: hooks that can be injected, files and directories that are not used
	ResidentBytes, OpenFiles          uint64
	CPUSeconds, StartedAt             float64 // StartedAt in seconds since 1970
}

// CDI is the registry's size. It is not Known while a directory does not answer.
type CDI struct {
	Known                                    bool
	Files, FilesInError, Devices, Unreadable uint64 // Unreadable directories
}

// Directory is one that the configuration names: Up while the file system that it
// is on answers.
type Directory struct {
	Path, Use string
	Up        bool
}

// Family is one metric: a name and what it counts.
type Family struct {
	Name string
	Type string // counter, gauge or histogram
	Help string
}

// series writes the values of one family.
type series struct {
	Family
	write func(w *writer, c *Counters, s *Sample)
}

// Families are all metrics, in the order in which they are exposed.
func Families() []Family {
	var out []Family
	for _, s := range all() {
		out = append(out, s.Family)
	}
	return out
}

// Expose appends all metrics in Prometheus' text format, version 0.0.4.
func Expose(b []byte, c *Counters, s *Sample) []byte {
	w := &writer{b: b}
	for _, f := range all() {
		w.begin(f.Family)
		f.write(w, c, s)
	}
	return w.b
}

// ContentType is that of what Expose gives.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

func all() []series {
	const counter, gauge, histogram = "counter", "gauge", "histogram"
	of := func(pick func(c *Counters) *Counter) func(*writer, *Counters, *Sample) {
		return func(w *writer, c *Counters, _ *Sample) { w.uint(pick(c).Load()) }
	}
	now := func(pick func(s *Sample) uint64) func(*writer, *Counters, *Sample) {
		return func(w *writer, _ *Counters, s *Sample) { w.uint(pick(s)) }
	}
	cdi := func(pick func(s *CDI) uint64) func(*writer, *Counters, *Sample) {
		return func(w *writer, _ *Counters, s *Sample) {
			if s.CDI.Known {
				w.uint(pick(&s.CDI))
			}
		}
	}
	return []series{
		{Family{"jackfield_build_info", gauge, "The build, in the labels version, commit and goversion: always 1."}, func(w *writer, _ *Counters, s *Sample) {
			w.uint(1, "version", s.Version, "commit", s.Commit, "goversion", runtime.Version())
		}},

		{Family{"jackfield_nri_connected", gauge, "1 while the plugin is registered with the runtime."}, now(func(s *Sample) uint64 { return bit(s.Connected) })},
		{Family{"jackfield_nri_connections_total", counter, "Registrations with the runtime."}, of(func(c *Counters) *Counter { return &c.Connections })},
		{Family{"jackfield_nri_runtime_info", gauge, "The runtime of the last registration and its NRI version: always 1."}, func(w *writer, _ *Counters, s *Sample) {
			if s.Runtime != "" {
				w.uint(1, "runtime", s.Runtime, "version", s.RuntimeVersion, "nri", s.NRI)
			}
		}},

		{Family{"jackfield_containers_total", counter, "Containers that were looked at."}, of(func(c *Counters) *Counter { return &c.Containers })},
		{Family{"jackfield_containers_untouched_total", counter, "Containers that asked for nothing."}, of(func(c *Counters) *Counter { return &c.Untouched })},
		{Family{"jackfield_containers_timed_out_total", counter, "Containers given up before the runtime's deadline."}, of(func(c *Counters) *Counter { return &c.TimedOut })},
		{Family{"jackfield_requests_total", counter, "Requests by where they came from and what became of them."}, requests},
		{Family{"jackfield_refusals_total", counter, "Refusals by the policy rule that came closest, or that limits; empty where none did."}, func(w *writer, c *Counters, _ *Sample) {
			c.RefusedBy.each(func(rule string, n uint64) { w.uint(n, "rule", rule) })
		}},
		{Family{"jackfield_would_refuse_total", counter, "Requests granted in mode audit that mode enforce would refuse."}, of(func(c *Counters) *Counter { return &c.Audited })},

		{Family{"jackfield_handler_duration_seconds", histogram, "Time that the runtime's calls took."}, func(w *writer, c *Counters, _ *Sample) {
			for h := range Handlers {
				w.histogram(&c.Handlers[h], "handler", h.String())
			}
		}},
		{Family{"jackfield_handler_timeouts_total", counter, "Calls answered before their work was done, because a file system or socket of the host did not answer."}, func(w *writer, c *Counters, _ *Sample) {
			for h := range Handlers {
				w.uint(c.Timeouts[h].Load(), "handler", h.String())
			}
		}},
		{Family{"jackfield_workers_busy", gauge, "Goroutines that are at work for calls of the runtime, hanging ones among them."}, now(func(s *Sample) uint64 { return s.Workers })},
		{Family{"jackfield_workers_max", gauge, "Goroutines for calls of the runtime that there can be; beyond it calls are refused."}, now(func(s *Sample) uint64 { return s.WorkersMax })},
		{Family{"jackfield_directory_up", gauge, "1 while a directory that the configuration names answers, whether it exists or not; 0 while whoever looks at it hangs."}, func(w *writer, _ *Counters, s *Sample) {
			for _, d := range s.Directories {
				w.uint(bit(d.Up), "directory", d.Path, "use", d.Use)
			}
		}},
		{Family{"jackfield_panics_total", counter, "Defects of the program that were caught; each is in the log with its stack."}, of(func(c *Counters) *Counter { return &c.Panics })},

		{Family{"jackfield_config_generation", gauge, "Grows with each configuration that comes into force."}, now(func(s *Sample) uint64 { return s.ConfigGeneration })},
		{Family{"jackfield_config_current", gauge, "1 while the configuration in force is the newest there is; 0 while a newer one is refused."}, now(func(s *Sample) uint64 { return bit(s.ConfigCurrent) })},
		{Family{"jackfield_config_refused_total", counter, "New configurations that were refused."}, now(func(s *Sample) uint64 { return s.ConfigRefused })},

		{Family{"jackfield_cdi_up", gauge, "1 while the CDI directories answer; the other metrics of CDI are there only then."}, now(func(s *Sample) uint64 { return bit(s.CDI.Known) })},
		{Family{"jackfield_cdi_files", gauge, "CDI specification files."}, cdi(func(s *CDI) uint64 { return s.Files })},
		{Family{"jackfield_cdi_files_in_error", gauge, "CDI specification files that are refused, or clash with others."}, cdi(func(s *CDI) uint64 { return s.FilesInError })},
		{Family{"jackfield_cdi_directories_in_error", gauge, "CDI directories that are there and cannot be read."}, cdi(func(s *CDI) uint64 { return s.Unreadable })},
		{Family{"jackfield_cdi_devices", gauge, "CDI devices that can be asked for."}, cdi(func(s *CDI) uint64 { return s.Devices })},

		{Family{"jackfield_hooks", gauge, "Hooks of hooks.d directories that can be injected."}, now(func(s *Sample) uint64 { return s.Hooks })},
		{Family{"jackfield_hooks_files_in_error", gauge, "Files and directories of hooks.d that are not used."}, now(func(s *Sample) uint64 { return s.HooksInError })},

		{Family{"jackfield_staging_mode", gauge, "How sockets get into containers: 1 for the mode in force. With directory a running container loses a socket whose directory is made anew, and gets no new networks."}, stagingMode},
		{Family{"jackfield_staging_containers", gauge, "Containers that have a staging directory."}, now(func(s *Sample) uint64 { return s.Staged })},
		{Family{"jackfield_staging_sockets", gauge, "Sockets of the host that are bound in staging directories."}, now(func(s *Sample) uint64 { return s.Sockets })},
		{Family{"jackfield_staging_failures_total", counter, "Work for sockets of running containers that failed."}, of(func(c *Counters) *Counter { return &c.StagingFailed })},
		{Family{"jackfield_hotplugs_total", counter, "Running containers whose networks changed, and that were given or rid of sockets."}, of(func(c *Counters) *Counter { return &c.HotPlugs })},
		{Family{"jackfield_status_containers", gauge, "Running containers that were given something."}, now(func(s *Sample) uint64 { return s.StatusContainers })},
		{Family{"jackfield_containers_missed", gauge, "Running containers that asked for something and have none of it: they were created while the plugin was not connected."}, now(func(s *Sample) uint64 { return s.Missed })},
		{Family{"jackfield_status_failures_total", counter, "Records of what a container was given that could not be kept or read: jackfield status forgets it at a restart."}, of(func(c *Counters) *Counter { return &c.StatusFailed })},
		{Family{"jackfield_socket_rebinds_total", counter, "Sockets bound again into running containers after their other side made them anew."}, of(func(c *Counters) *Counter { return &c.Rebinds })},
		{Family{"jackfield_cleanup_failures_total", counter, "Removals of what belonged to a container or pod that left something behind."}, of(func(c *Counters) *Counter { return &c.CleanupFailed })},

		{Family{"jackfield_audit_up", gauge, "1 while the audit file can be written, or none is configured."}, now(func(s *Sample) uint64 { return bit(s.AuditWritable) })},
		{Family{"jackfield_audit_lines_total", counter, "Lines written to the audit file."}, of(func(c *Counters) *Counter { return &c.AuditLines })},
		{Family{"jackfield_audit_dropped_total", counter, "Lines lost because the audit file was too slow."}, of(func(c *Counters) *Counter { return &c.AuditDropped })},
		{Family{"jackfield_audit_failures_total", counter, "Lines lost because the audit file could not be written."}, of(func(c *Counters) *Counter { return &c.AuditFailed })},
		{Family{"jackfield_log_dropped_total", counter, "Log lines lost because whatever reads standard error was too slow."}, of(func(c *Counters) *Counter { return &c.LogDropped })},

		{Family{"process_resident_memory_bytes", gauge, "Resident memory size in bytes."}, now(func(s *Sample) uint64 { return s.ResidentBytes })},
		{Family{"process_open_fds", gauge, "Number of open file descriptors."}, now(func(s *Sample) uint64 { return s.OpenFiles })},
		{Family{"process_cpu_seconds_total", counter, "Total user and system CPU time spent in seconds."}, func(w *writer, _ *Counters, s *Sample) { w.float(s.CPUSeconds) }},
		{Family{"process_start_time_seconds", gauge, "Start time of the process since unix epoch in seconds."}, func(w *writer, _ *Counters, s *Sample) { w.float(s.StartedAt) }},
		{Family{"go_goroutines", gauge, "Number of goroutines that currently exist."}, func(w *writer, _ *Counters, _ *Sample) { w.uint(uint64(runtime.NumGoroutine())) }},
	}
}

// stagingMode gives every mode, so that a rule can ask for one that is not in force.
func stagingMode(w *writer, _ *Counters, s *Sample) {
	if s.StagingMode == "" {
		return
	}
	for _, m := range [...]string{"mount", "directory"} {
		w.uint(bit(m == s.StagingMode), "mode", m)
	}
}

// requests gives every pair, so that a first refusal is an increase and not a new
// series.
func requests(w *writer, c *Counters, _ *Sample) {
	for src := range Sources {
		for out := range Outcomes {
			if src == SourceContainer && out != Failed && out != Refused {
				continue
			}
			w.uint(c.Requests[src][out].Load(), "source", src.String(), "outcome", out.String())
		}
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
