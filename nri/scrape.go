// SPDX-License-Identifier: Apache-2.0

package nri

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/jackfield/jackfield/pkg/cdiregistry"
	"github.com/jackfield/jackfield/pkg/staging"
	"github.com/jackfield/jackfield/pkg/telemetry"
	"github.com/jackfield/jackfield/pkg/version"
)

// runtimeInfo is what the runtime of the last registration said of itself.
type runtimeInfo struct{ name, version, nri string }

// runtimeName is what the runtime calls itself, "" before it has.
func (p *Plugin) runtimeName() string {
	if info := p.runtimeInfo.Load(); info != nil {
		return info.name
	}
	return ""
}

// cdiSize is the size of a snapshot.
type cdiSize struct {
	of   *cdiregistry.Snapshot
	size cdiregistry.Size
}

func (p *Plugin) cdi(registry *cdiregistry.Registry) telemetry.CDI {
	now, ok := p.size.get(func(last cdiSize) cdiSize {
		if snapshot := registry.Snapshot(); snapshot != last.of {
			return cdiSize{snapshot, snapshot.Size()}
		}
		return last
	})
	if !ok {
		return telemetry.CDI{}
	}
	return telemetry.CDI{Known: true, Files: uint64(now.size.Files), FilesInError: uint64(now.size.FilesInError),
		Devices: uint64(now.size.Devices), Unreadable: uint64(now.size.DirsInError)}
}

// sample looks at what metrics tell beside the counts.
func (p *Plugin) sample() *telemetry.Sample {
	build := version.Get()
	s := &telemetry.Sample{
		Version: build.Version, Commit: build.ShortCommit(), Connected: p.connected.Load(),
		ConfigGeneration: p.generation.Load(), ConfigRefused: p.failures.Load(), ConfigCurrent: p.configFault.Load() == nil,
		Workers: p.workers.busyCount(), WorkersMax: maxHanging, StatusContainers: p.tracker.count(), Missed: p.missed.count(), AuditWritable: true,
	}
	if info := p.runtimeInfo.Load(); info != nil {
		s.Runtime, s.RuntimeVersion, s.NRI = info.name, info.version, info.nri
	}
	if core := p.core.Load(); core != nil {
		s.CDI = p.cdi(core.engine.Registry())
		if store := core.store; store == nil {
			// Nothing can be told of a state directory that does not answer.
		} else if st, ok := p.staged.get(func(staging.Stats) staging.Stats { return store.Stats().Plus(p.kept.Load().stats()) }); ok {
			s.StagingMode = string(store.Status().Mode)
			s.Staged, s.Sockets = uint64(st.Containers), uint64(st.Sockets)
		}
	}
	if a := p.monitor.audit.Load(); a != nil {
		s.AuditWritable = !a.failing.Load()
	}
	s.Directories = p.dirs.sample()
	s.Hooks, s.HooksInError = p.hooks.usable.Load(), p.hooks.inError.Load()
	process(s)
	return s
}

// process reads what the kernel counts of this process, from /proc/self/stat,
// statm and fd. What cannot be read is 0.
func process(s *telemetry.Sample) {
	if data, err := os.ReadFile("/proc/self/statm"); err == nil {
		if f := bytes.Fields(data); len(f) > 1 {
			pages, _ := strconv.ParseUint(string(f[1]), 10, 64)
			s.ResidentBytes = pages * uint64(os.Getpagesize())
		}
	}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		s.OpenFiles = uint64(len(fds)) - 1 // the directory's own
	}
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) == nil {
		s.CPUSeconds = time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
	}
	const ticks = 100 // of a second, in /proc on every Linux
	if data, err := os.ReadFile("/proc/self/stat"); err == nil {
		f := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
		var now, boot unix.Timespec
		if len(f) > 19 && unix.ClockGettime(unix.CLOCK_REALTIME, &now) == nil && unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) == nil {
			start, _ := strconv.ParseFloat(string(f[19]), 64)
			s.StartedAt = float64(now.Nano()-boot.Nano())/1e9 + start/ticks
		}
	}
}

func (p *Plugin) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	body := telemetry.Expose(nil, &p.counters, p.sample())
	w.Header().Set("Content-Type", telemetry.ContentType)
	_, _ = w.Write(body)
}

// serveHealth says whether the process can do its work. It is 503 only where a
// restart may help: a configuration that is refused would be refused again, and a
// directory that hangs would hang again.
func (p *Plugin) serveHealth(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	code := http.StatusOK
	if busy := p.workers.busyCount(); busy >= maxHanging {
		code = http.StatusServiceUnavailable
		fmt.Fprintf(&b, "workers: %d calls hang on this host's file systems or sockets\n", busy)
	} else {
		fmt.Fprintln(&b, "workers: ok")
	}
	if fault := p.configFault.Load(); fault != nil {
		fmt.Fprintf(&b, "config: generation %d is in force; a newer one is refused: %v\n", p.generation.Load(), *fault)
	} else {
		fmt.Fprintf(&b, "config: ok, generation %d\n", p.generation.Load())
	}
	if a := p.monitor.audit.Load(); a != nil && a.failing.Load() {
		fmt.Fprintf(&b, "audit: %s cannot be written\n", a.path)
	} else {
		fmt.Fprintln(&b, "audit: ok")
	}
	p.dirs.say(&b)
	answer(w, code, b.Bytes())
}

// serveReady is 200 while the plugin is registered with the runtime: what hangs is
// said, and keeps the plugin from serving none but those that need it.
func (p *Plugin) serveReady(w http.ResponseWriter, _ *http.Request) {
	if p.connected.Load() {
		b := bytes.NewBufferString("registered with the runtime\n")
		if p.dirs.hanging() != "" {
			p.dirs.say(b)
		}
		answer(w, http.StatusOK, b.Bytes())
		return
	}
	answer(w, http.StatusServiceUnavailable, []byte("not registered with the runtime\n"))
}

func answer(w http.ResponseWriter, code int, body []byte) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
