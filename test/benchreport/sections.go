// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"strings"
)

// sizes has the numbers of files of the benchmarks that depend on them.
var sizes = []int{10, 100, 1000, 5000}

// section is a table of the documentation with its plots.
type section struct {
	name string
	dir  string // of the benchmarks, below test/; "" is bench
	// runs has the duration and number of runs of the benchmarks. A benchmark that a row or plot
	// names and that is not listed here runs once, for a second.
	runs    []bench
	rows    []row
	growths []growth
	outages *outages
}

// bench is one run of benchmarks.
type bench struct {
	bench string // elements of the name; "*" in an element matches anything
	time  string // testing's -benchtime; "" is 1s
	count int    // how often; 0 is once
}

// sections has all sections. The rows have the targets of the design.
var sections = []section{
	{
		name: "cdi",
		runs: []bench{
			{bench: "CDIColdLoad/n=*/jackfield", time: "20x", count: 3},
			{bench: "CDIColdLoad/n=*/upstream", time: "3x"},
			{bench: "CDIAdd/n=10/jackfield", time: "3000x"},
			{bench: "CDIAdd/n=100/jackfield", time: "3000x"},
			{bench: "CDIAdd/n=1000/jackfield", time: "100000x"},
			{bench: "CDIAdd/n=5000/jackfield", time: "3000x"},
			{bench: "CDIAdd/n=10/upstream", time: "50x"},
			{bench: "CDIAdd/n=100/upstream", time: "20x"},
			{bench: "CDIAdd/n=1000/upstream", time: "5x"},
			{bench: "CDIAdd/n=5000/upstream", time: "2x"},
			{bench: "CDILookupUnderWrites/n=*/jackfield", time: "10x"},
			{bench: "CDILookupUnderWrites/n=*/upstream", time: "5x"},
			{bench: "CDIHeap", time: "1x"},
			{bench: "CDIInjectProcess/n=0", time: "60x", count: 3},
			{bench: "CDIInjectProcess/n=1000", time: "15x"},
		},
		rows: []row{
			cdi("one file added → resolvable, 1,000 files, median", "CDIAdd/n=1000/SIDE p50-ns", 1.0/500),
			cdi("one file added → resolvable, 5,000 files, median", "CDIAdd/n=5000/SIDE p50-ns", 0),
			{text: "rename, then look up at once: missed of 100,000", ours: f("CDIAdd/n=1000/jackfield %missed"), peer: f("CDIAdd/n=1000/upstream %missed"), by: "upstream", zero: true},
			cdi("lookup p99, 1,000 files, 10 writes a second", "CDILookupUnderWrites/n=1000/SIDE p99-ns", 1.0/500),
			cdi("cold load, 10 files", "CDIColdLoad/n=10/SIDE", 1.0/3),
			cdi("cold load, 100 files", "CDIColdLoad/n=100/SIDE", 1.0/3),
			cdi("cold load, 1,000 files", "CDIColdLoad/n=1000/SIDE", 1.0/3),
			cdi("heap a file, 1,000 files", "CDIHeap/n=1000/SIDE heap-B/file", 1),
			{text: "`jackfield inject`, whole process, 1,000 files", ours: f("CDIInjectProcess/n=1000 jackfield-ms"), peer: f("CDIInjectProcess/n=1000 upstream-ms"), by: "upstream's library", mostTimes: 1.0 / 10},
			{text: "`jackfield inject`, whole process, no files", ours: f("CDIInjectProcess/n=0 jackfield-ms"), peer: f("CDIInjectProcess/n=0 hello-ms"), by: "Go's hello, world", mostTimes: 4},
		},
		growths: []growth{
			{"cdi-add", "one file added → resolvable", cdiSides("CDIAdd/n=N/SIDE p50-ns"), 0},
			{"cdi-lookup-p99", "lookup p99 with 10 writes a second", cdiSides("CDILookupUnderWrites/n=N/SIDE p99-ns"), 0},
			{"cdi-load", "cold load", cdiSides("CDIColdLoad/n=N/SIDE"), 0},
			{"cdi-heap", "heap a file", cdiSides("CDIHeap/n=N/SIDE heap-B/file"), 0},
		},
	},
	{
		name: "nri",
		runs: []bench{
			{bench: "NRICreateContainer", time: "1500x", count: 3},
			{bench: "NRIStaleDeviceInfo", time: "1000x", count: 3},
		},
		rows: []row{
			nri("a pod that asks for nothing", "NRICreateContainer/nothing-asked", "noop", "no-op plugin", 1.15),
			nri("4 CDI devices and 2 sockets", "NRICreateContainer/4-cdi-2-sockets", "floor", "plugin that creates the same from memory", 2.1),
			nri("a pod that asks for nothing, 10,000 stale device-info files", "NRIStaleDeviceInfo/nothing-asked", "empty", "empty directory", 1.2),
			nri("2 sockets, 10,000 stale device-info files", "NRIStaleDeviceInfo/2-sockets", "empty", "empty directory", 1.2),
		},
	},
	{
		name: "refusals",
		runs: []bench{{bench: "NRIRefusals", time: "30x", count: 3}},
		rows: []row{
			nri("1,024 refused names under 300 rules of 30 patterns", "NRIRefusals", "granted", "the same request, granted", 5),
		},
	},
	{
		name: "daemon",
		runs: []bench{{bench: "Rebind/jackfield", time: "1000x"}, {bench: "Rebind/bare", time: "1000x"}, {bench: "DaemonIdle", time: "3x"}},
		rows: []row{
			{text: "socket re-created → a container connects again, 100 containers, median", ours: f("Rebind/jackfield p50-ms"), peer: f("Rebind/bare p50-ms"), by: "bare program"},
			{text: "socket re-created → a container connects again, 100 containers, p99", ours: f("Rebind/jackfield p99-ms"), peer: f("Rebind/bare p99-ms"), by: "bare program", mostTimes: 4},
			{text: "idle daemon's resident memory, 1,000 CDI files, metrics and audit on", ours: f("DaemonIdle MiB-resident"), peer: f("DaemonIdle noop-MiB-resident"), by: "no-op plugin", mostTimes: 2},
		},
	},
	{
		name: "vswitch",
		runs: []bench{{bench: "PortEnsure", time: "30x", count: 3}, {bench: "PortAdd", time: "30x", count: 3}, {bench: "PortsLost/n=1", time: "5x"}, {bench: "PortsLost/n=100", time: "5x"},
			{bench: "PortsLost/n=1000", time: "1x"}, {bench: "PortWatchIdle", time: "3x"}},
		rows: []row{
			{text: "a port of Open vSwitch, created and usable", ours: f("PortEnsure ms"), peer: f("PortEnsure own-ms"), by: "Open vSwitch alone", ratio: f("PortEnsure x/own"), mostTimes: 2},
			{text: "the same", ours: f("PortEnsure ms"), peer: f("PortEnsure vsctl-ms"), by: "`ovs-vsctl`", ratio: f("PortEnsure x/vsctl")},
			{text: "CNI ADD that creates a port, whole `jackfield-cni` process", ours: f("PortAdd ms"), peer: f("PortAdd own-ms"), by: "Open vSwitch alone", ratio: f("PortAdd x/own"), mostTimes: 2},
			portsLost("1 port usable again after a restart with an empty database", "PortsLost/n=1", 0, 0),
			portsLost("100 ports usable again", "PortsLost/n=100", 3e9, 1.5),
			portsLost("1,000 ports usable again", "PortsLost/n=1000", 0, 0),
			{text: "processor time of watching 100 ports, a minute", ours: f("PortWatchIdle ms/min")},
		},
	},
	{
		name: "cluster",
		dir:  "kube",
		runs: []bench{{bench: "PodsReady", time: "1x", count: 5}},
		rows: []row{
			{text: "40 pods from `kubectl apply` to Ready, each with a device and a socket", ours: f("PodsReady s"), peer: f("PodsReady without-s"), by: "without Jackfield, device and socket", ratio: f("PodsReady x/without"), mostTimes: 1.1},
			{text: "the same", ours: f("PodsReady s"), peer: f("PodsReady hostpath-s"), by: "hostPath volumes of the same", ratio: f("PodsReady x/hostpath")},
			{text: "the plugin's own part of a container's creation, mean", ours: f("PodsReady create-ms")},
		},
	},
	{
		name:    "recovery",
		dir:     "e2e/dpdk",
		runs:    []bench{{bench: "Recovery", time: "3x"}},
		outages: &recovery,
	},
	{
		name: "hook",
		runs: []bench{{bench: "HookPrecreate", time: "60x", count: 3}, {bench: "HookCreateRuntime", time: "60x", count: 3}},
		rows: []row{
			hook("`jackfield-hook` at `precreate`, one device", "HookPrecreate"),
			hook("`jackfield-hook` at `createRuntime`, one device with a mount", "HookCreateRuntime"),
		},
	},
}

// recovery has the switches, ports and databases of BenchmarkRecovery, and the combinations that do not exist.
var recovery = outages{
	name: "recovery", title: "From the kill of the switch to the first packet between two pods",
	rows: slices.Concat(
		recoveries("Open vSwitch", "ovs", vhostServer, "kept"),
		recoveries("Open vSwitch", "ovs", vhostServer, "wiped"),
		recoveries("Open vSwitch", "ovs", vhostClient, "kept"),
		recoveries("Open vSwitch", "ovs", vhostClient, "wiped"),
		[]outageRow{{vswitch: "Open vSwitch", port: "memif, both roles", database: "both", reason: "Open vSwitch has no memif ports"}},
		recoveries("grout", "grout", vhostServer, "wiped"),
		recoveries("grout", "grout", vhostClient, "wiped"),
		recoveries("grout", "grout", memifSlave, "wiped"),
		[]outageRow{
			{vswitch: "grout", port: "memif `master`", database: "both", reason: "grout connects to a socket of an application only once"},
			{vswitch: "grout", port: "all", database: "kept", reason: "grout has no database"},
			{vswitch: "VPP", port: "all", database: "both", reason: "Debian has no VPP"},
		},
	),
}

// The ports of BenchmarkRecovery as the page names them, and their benchmarks' names.
var (
	vhostServer = [2]string{"vhost-user `server`", "vhost-user-server"}
	vhostClient = [2]string{"vhost-user `client`", "vhost-user-client"}
	memifSlave  = [2]string{"memif `slave`", "memif-slave"}
)

// recoveries returns the rows of a port with each party that can restore it.
func recoveries(vswitch, name string, port [2]string, database string) []outageRow {
	var rows []outageRow
	for _, by := range [][2]string{{"Jackfield", "jackfield"}, {"start-up script", "script"}, {"nothing", "nothing"}} {
		rows = append(rows, outageRow{vswitch: vswitch, port: port[0], database: database, by: by[0],
			bench: strings.Join([]string{"Recovery", name, port[1], database, by[1]}, "/")})
	}
	return rows
}

// nri returns a row of a benchmark that reports µs, NAME-µs and x/NAME.
func nri(text, bench, name, by string, most float64) row {
	return row{text: text, ours: f(bench + " µs"), peer: f(bench + " " + name + "-µs"), by: by, ratio: f(bench + " x/" + name), mostTimes: most}
}

// hook returns a row that compares a whole process with a Go program that prints a line.
func hook(text, bench string) row {
	return row{text: text, ours: f(bench + " jackfield-ms"), peer: f(bench + " hello-ms"), by: "Go's hello, world", ratio: f(bench + " x/hello"), mostTimes: 2.5}
}

// portsLost returns a row that compares the re-creation of ports with ovs-vsctl.
func portsLost(text, bench string, most, mostTimes float64) row {
	return row{text: text, ours: f(bench + " ms"), peer: f(bench + " vsctl-ms"), by: "one call of `ovs-vsctl`", ratio: f(bench + " x/vsctl"), most: most, mostTimes: mostTimes}
}

// cdi returns a row of a benchmark with Jackfield and upstream's package as its sides; "SIDE" in the name stands for them.
func cdi(text, bench string, mostTimes float64) row {
	sides := cdiSides(bench)
	return row{text: text, ours: sides[0].figure, peer: sides[1].figure, by: "upstream", mostTimes: mostTimes}
}

func cdiSides(bench string) []side {
	var out []side
	for _, s := range []struct{ name, side string }{{"Jackfield", "jackfield"}, {"upstream's pkg/cdi", "upstream"}} {
		out = append(out, side{s.name, f(strings.ReplaceAll(bench, "SIDE", s.side))})
	}
	return out
}

func sectionNames() []string {
	var names []string
	for _, s := range sections {
		names = append(names, s.name)
	}
	return names
}

// directory returns the directory of the benchmarks, below test/.
func (s *section) directory() string { return cmp.Or(s.dir, "bench") }

// figures returns all figures that the rows and plots show.
func (s *section) figures() []figure {
	var all []figure
	for _, w := range s.rows {
		all = append(all, w.ours, w.peer, w.ratio)
	}
	for _, g := range s.growths {
		for _, side := range g.sides {
			all = append(all, side.figure)
		}
	}
	if s.outages != nil {
		for i := range s.outages.rows {
			if w := &s.outages.rows[i]; w.bench != "" {
				all = append(all, w.figures()...)
			}
		}
	}
	return all
}

// plan returns all runs, including those of benchmarks that only a row or a plot names.
func (s *section) plan() []bench {
	runs := slices.Clone(s.runs)
	planned := map[string]bool{"": true}
	for _, b := range s.runs {
		planned[functionOf(b.bench)] = true
	}
	for _, fig := range s.figures() {
		if !planned[fig.function()] {
			planned[fig.function()] = true
			runs = append(runs, bench{bench: fig.function()})
		}
	}
	return runs
}

func functionOf(name string) string { return f(name).function() }
